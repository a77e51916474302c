"""Declares the train step: a ModelTrainer with torchrun or mpirun on N nodes."""

from collections.abc import Iterator, Mapping

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import (
    Channel,
    CheckpointConfig,
    Compute,
    DataSource,
    FileSystemDataSource,
    MetricDefinition,
    Networking,
    OutputDataConfig,
    S3DataSource,
    SourceCode,
    StoppingCondition,
    Tag,
    TensorBoardOutputConfig,
)
from sagemaker.train.distributed import MPI, SMP, DistributedConfig, Torchrun

from steps.context import StepContext
from steps.processing import output_uri
from steps.train.config import CHECKPOINTS, TrainStepConfig
from training.metric_line import METRICS
from training.start import CHANNEL
from trainyard.common.errors import DefinitionError

CODE = "/opt/ml/input/data/code"
SPLITS = ("train", "validation")


class OfflineTrainer(ModelTrainer):
    """A ModelTrainer whose requests can be built with no AWS in reach."""

    def _resolve_staging_bucket(self) -> tuple[str, str | None]:
        """The session's bucket, without asking IAM whether the role may write to it (#6019)."""
        return self.sagemaker_session.default_bucket(), None


def train_step(
    context: StepContext,
    config: TrainStepConfig,
    *,
    image: str,
    shard: ProcessingStep,
    workload_hyperparameters: Mapping[str, str],
    checkpoint_key: str,
) -> TrainingStep:
    """Channels ``train`` and ``validation``; the model goes to ``<root>/runs/<execution>/train``.

    ``checkpoint_key`` names what the training depends on as far as the definition knows it. The
    checkpoints' prefix must not hold the execution's id: CheckpointConfig is part of the step
    cache's key, and a run that takes up a lost one's work has to find it.
    """
    trainer = OfflineTrainer(
        sagemaker_session=context.session,
        role=context.role,
        base_job_name="train",
        training_image=image,
        source_code=SourceCode(
            source_dir=context.code("train"),
            entry_script="steps/train/job.py",
            requirements="requirements.txt",
        ),
        distributed=_distributed(config),
        compute=_compute(context, config),
        networking=_networking(context),
        stopping_condition=_stopping_condition(config),
        output_data_config=OutputDataConfig(
            s3_output_path=context.run_uri("train"), kms_key_id=context.kms_key
        ),
        checkpoint_config=CheckpointConfig(
            s3_uri=f"{context.root_uri}/checkpoints/{checkpoint_key}",
            local_path=CHECKPOINTS,
        ),
        training_input_mode="FastFile" if config.input_mode == "FastFile" else "File",
        environment={**config.launcher_environment, **config.environment, "PYTHONPATH": CODE},
        hyperparameters=_hyperparameters(context, config, workload_hyperparameters),
        tags=[Tag(key=key, value=value) for key, value in sorted(context.tags.items())],
    ).with_metric_definitions([MetricDefinition(name=n, regex=r) for n, r in METRICS])
    if config.loop.tensorboard:  # appears at <run>/train/<job>/tensorboard-output while it runs
        trainer.with_tensorboard_output_config(
            TensorBoardOutputConfig(s3_output_path=context.run_uri("train"))
        )
    step_args = trainer.train(
        input_data_config=[
            *(_channel(context, config, shard, split) for split in SPLITS),
            *_start_channel(config),
        ]
    )
    return TrainingStep(
        name="Train",
        display_name="Train",
        description=f"Distributed training, strategy {config.loop.strategy}",
        step_args=step_args,
        cache_config=context.cache,
        retry_policies=list(context.retries),
        # A mounted file system carries no reference to the shard step: say it (DependsOn).
        depends_on=[shard] if config.fsx else None,
    )


def _distributed(config: TrainStepConfig) -> DistributedConfig:
    """How AWS's drivers start the ranks.

    The MPI driver of SDK 3.27 passes the processes of one node as mpirun's ``-np``, which is all of
    them: on several nodes it would start the first one's only. So it is given all, and the mapping
    says how many of them go to each node.
    """
    processes = config.processes_per_node or None
    if config.launcher == "mpi":
        if config.instance_count == 1:
            return MPI(process_count_per_node=processes)
        return MPI(
            process_count_per_node=processes * config.instance_count,
            mpi_additional_options=["--map-by", f"ppr:{processes}:node"],
        )
    if config.loop.strategy == "smp":
        smp = SMP(hybrid_shard_degree=config.loop.shard_degree)
        return Torchrun(process_count_per_node=processes, smp=smp)
    return Torchrun(process_count_per_node=processes)


def _compute(context: StepContext, config: TrainStepConfig) -> Compute:
    return Compute(
        instance_type=context.parameters["TrainInstanceType"],
        instance_count=context.parameters["TrainInstanceCount"],
        volume_size_in_gb=config.volume_gb,
        volume_kms_key_id=context.volume_key(config.instance_type),
        enable_managed_spot_training=config.spot,
        keep_alive_period_in_seconds=config.keep_alive_minutes * 60 or None,
    )


def _networking(context: StepContext) -> Networking:
    return Networking(
        subnets=list(context.subnets) or None,
        security_group_ids=list(context.security_groups) or None,
        enable_network_isolation=context.network_isolation,
        enable_inter_container_traffic_encryption=context.encrypt_traffic,
    )


def _stopping_condition(config: TrainStepConfig) -> StoppingCondition:
    wait = {"max_wait_time_in_seconds": config.max_wait_minutes * 60} if config.spot else {}
    return StoppingCondition(max_runtime_in_seconds=config.max_runtime_minutes * 60, **wait)


def _hyperparameters(
    context: StepContext, config: TrainStepConfig, workload: Mapping[str, str]
) -> dict[str, str | PipelineVariable]:
    """All strings: the service refuses anything else, a bare ``Get`` of a number too (#4867)."""
    loop = {name: str(value) for name, value in config.loop.model_dump(mode="json").items()}
    start = config.start_from
    begun = {"start_from": start.model_dump_json(exclude_defaults=True)} if start else {}
    return {**loop, "max_steps": context.text("MaxSteps"), **workload, **begun}


def _start_channel(config: TrainStepConfig) -> Iterator[Channel]:
    """What the weights begin with, if not fresh ones; every node gets all of it."""
    if config.start_from is None:
        return
    if config.start_from.uri is None:
        raise DefinitionError(
            f"train.start_from.model_package {config.start_from.model_package}: its model.tar.gz "
            "was not looked up; set train.start_from.model to its S3 URI"
        )
    yield Channel(
        channel_name=CHANNEL,
        input_mode="File",
        data_source=DataSource(
            s3_data_source=S3DataSource(
                s3_data_type="S3Prefix",
                s3_uri=config.start_from.uri,
                s3_data_distribution_type="FullyReplicated",
            )
        ),
    )


def _channel(
    context: StepContext, config: TrainStepConfig, shard: ProcessingStep, split: str
) -> Channel:
    """``Channel``, not ``InputData``: the latter forces File over FastFile."""
    if config.fsx:
        return Channel(
            channel_name=split,
            input_mode="File",
            data_source=DataSource(
                file_system_data_source=FileSystemDataSource(
                    file_system_id=config.fsx.file_system_id,
                    file_system_type="FSxLustre",
                    file_system_access_mode="ro",
                    directory_path=_lustre_path(config.fsx.directory_path, split),
                )
            ),
        )
    return Channel(
        channel_name=split,
        input_mode=config.input_mode,
        data_source=DataSource(
            s3_data_source=S3DataSource(
                s3_data_type="S3Prefix",
                s3_uri=output_uri(shard, split),
                s3_data_distribution_type="FullyReplicated",
            )
        ),
    )


def _lustre_path(folder: str, split: str) -> PipelineVariable:
    """Where the association shows ``<root>/runs/<execution id>/shard/<split>``."""
    execution = ExecutionVariables.PIPELINE_EXECUTION_ID
    return Join(on="/", values=[f"{folder}/runs", execution, "shard", split])
