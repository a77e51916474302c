"""Declare the train step: a ModelTrainer on N nodes, for the loop or a script."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.functions import Join
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import (
    CheckpointConfig,
    Compute,
    MetricDefinition,
    Networking,
    OutputDataConfig,
    SourceCode,
    StoppingCondition,
    Tag,
    TensorBoardOutputConfig,
)
from sagemaker.train.distributed import DistributedConfig

from steps.processing import StepContext
from steps.train.config import CHECKPOINTS, TrainStepConfig
from steps.train.job_program import Program, make_s3_channel
from trainyard.common.errors import DefinitionError

SCRIPT = "/opt/ml/input/data/sm_drivers/sm_train.sh"
WHEELS = "/opt/ml/input/data/wheels"
COMMAND = f"chmod +x {SCRIPT} && exec /bin/bash {SCRIPT}"


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The best training job that a tuning job has found."""

    training_job: PipelineVariable
    """Name of the best training job."""
    values: Mapping[str, PipelineVariable]
    """Value of each searched hyperparameter in that job."""
    trial_count: PipelineVariable
    """Number of completed training jobs, of which this one is the best."""

    @property
    def about(self) -> dict[str, str | PipelineVariable]:
        """Return the metadata about the search that is registered with the model."""
        return {"best_training_job": self.training_job, "trainings_compared": self.trial_count}


class SignalledTrainer(ModelTrainer):
    """A ModelTrainer whose driver receives SIGTERM, and whose request needs no call to AWS.

    SageMaker sends SIGTERM to the container's first process. With the SDK's command that is a
    shell, which starts another shell, and they do not pass the signal on
    (sagemaker-training-toolkit #125, #173). So each shell is replaced by its program with ``exec``.
    """

    def _resolve_staging_bucket(self) -> tuple[str, str | None]:
        """Return the session's bucket, without asking IAM whether it is writable (#6019)."""
        return self.sagemaker_session.default_bucket(), None

    def _prepare_train_script(
        self,
        tmp_dir: TemporaryDirectory,
        source_code: SourceCode,
        distributed: DistributedConfig | None = None,
    ) -> None:
        """Write the SDK's script, and change it to ``exec`` the driver."""
        super()._prepare_train_script(tmp_dir, source_code, distributed)
        path = Path(tmp_dir.name) / Path(SCRIPT).name
        before, call, after = path.read_text(encoding="utf-8").partition(
            "$SM_PYTHON_CMD /opt/ml/input/data/sm_drivers/distributed_drivers/"
        )
        if not call:
            raise DefinitionError("the SDK's sm_train.sh starts no driver; use sagemaker 3.27.0")
        path.write_text(f"{before}exec {call}{after}", encoding="utf-8")

    def _create_training_job_args(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the SDK's request with a command that uses ``exec``."""
        request = super()._create_training_job_args(*args, **kwargs)
        request["AlgorithmSpecification"]["ContainerArguments"] = ["-c", COMMAND]
        return request


def make_train_step(
    context: StepContext,
    config: TrainStepConfig,
    program: Program,
    *,
    image: str,
    shard: ProcessingStep | None,
    checkpoint_key: str,
    tuning_result: TuningResult | None = None,
) -> TrainingStep:
    """Return the step that runs ``program``; the model goes to ``<root>/runs/<execution>/train``.

    Args:
        checkpoint_key: name of the training's inputs, as far as they are known when the pipeline is
            defined. It is the last part of the checkpoints' prefix. That prefix must not contain
            the execution's id, because CheckpointConfig is part of the step cache's key, and an
            execution that continues a lost one has to find the checkpoints.
        tuning_result: the best training that a search has found. The step trains with its values,
            and continues from its last checkpoint: its checkpoints are below its job's name.
    """
    wheels_uri = context.wheels("train")
    wheels = [make_s3_channel("wheels", wheels_uri, "File")] if wheels_uri else []
    checkpoints: str | PipelineVariable = f"{context.root_uri}/checkpoints/{checkpoint_key}"
    if tuning_result:
        checkpoints = Join(on="/", values=[checkpoints, tuning_result.training_job])
    wait = config.max_wait_minutes if config.spot else None
    wait_limit = {"max_wait_time_in_seconds": wait * 60} if wait is not None else {}
    trainer = SignalledTrainer(
        sagemaker_session=context.session,
        role=context.role,
        base_job_name="train",
        training_image=image,
        source_code=program.source_code,
        distributed=program.distributed,
        compute=_build_compute(context, config),
        networking=_build_networking(context),
        stopping_condition=StoppingCondition(
            max_runtime_in_seconds=config.max_runtime_minutes * 60, **wait_limit
        ),
        output_data_config=OutputDataConfig(
            s3_output_path=context.build_run_uri("train"),
            kms_key_id=context.kms_key,
            compression_type="NONE" if config.model_compression == "none" else None,
        ),
        checkpoint_config=CheckpointConfig(s3_uri=checkpoints, local_path=CHECKPOINTS),
        training_input_mode=config.s3_mode,
        environment={**context.pip(WHEELS), **program.environment},
        hyperparameters={
            **program.hyperparameters,
            **(tuning_result.values if tuning_result else {}),
        },
        tags=[Tag(key=key, value=value) for key, value in sorted(context.tags.items())],
    )
    if program.metrics:
        metrics = [MetricDefinition(name=n, regex=r) for n, r in program.metrics]
        trainer.with_metric_definitions(metrics)
    if config.loop and config.loop.tensorboard:
        # While the job runs, the files appear at <run>/train/<job>/tensorboard-output.
        trainer.with_tensorboard_output_config(
            TensorBoardOutputConfig(s3_output_path=context.build_run_uri("train"))
        )
    return TrainingStep(
        name="Train",
        display_name="Train",
        description=program.description,
        step_args=trainer.train(input_data_config=[*program.channels, *wheels]),
        # No cache for file systems: a request names a file system but not its content, so an
        # earlier result may have been trained on other data.
        cache_config=None if config.mounted_fields else context.cache,
        retry_policies=list(context.retries),
        # The channel of a mounted file system does not refer to the shard step, so the dependency
        # has to be stated (DependsOn).
        depends_on=[shard] if shard and config.fsx else None,
    )


def _build_compute(context: StepContext, config: TrainStepConfig) -> Compute:
    return Compute(
        instance_type=context.parameters["TrainInstanceType"],
        instance_count=context.parameters["TrainInstanceCount"],
        volume_size_in_gb=config.volume_gb,
        volume_kms_key_id=context.volume_key(config.instance_type),
        enable_managed_spot_training=config.spot,
        keep_alive_period_in_seconds=config.keep_alive_minutes * 60 or None,
        training_plan_arn=config.training_plan,
    )


def _build_networking(context: StepContext) -> Networking:
    return Networking(
        subnets=list(context.subnets) or None,
        security_group_ids=list(context.security_groups) or None,
        enable_network_isolation=context.network_isolation,
        enable_inter_container_traffic_encryption=context.encrypt_traffic,
    )
