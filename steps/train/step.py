"""Declares the train step: a ModelTrainer on N nodes, for the training loop or for a script."""

from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep
from sagemaker.train.configs import (
    CheckpointConfig,
    Compute,
    MetricDefinition,
    Networking,
    OutputDataConfig,
    StoppingCondition,
    Tag,
    TensorBoardOutputConfig,
)

from steps.context import StepContext
from steps.train.config import CHECKPOINTS, TrainStepConfig
from steps.train.program import Program
from steps.train.trainer import OfflineTrainer, SignalledTrainer


def train_step(
    context: StepContext,
    config: TrainStepConfig,
    program: Program,
    *,
    image: str,
    shard: ProcessingStep | None,
    checkpoint_key: str,
) -> TrainingStep:
    """Run ``program``; the model goes to ``<root>/runs/<execution>/train``.

    ``checkpoint_key`` names what the training depends on as far as the definition knows it. The
    checkpoints' prefix must not hold the execution's id: CheckpointConfig is part of the step
    cache's key, and a run that takes up a lost one's work has to find it.
    """
    kind = SignalledTrainer if config.script else OfflineTrainer
    trainer = kind(
        sagemaker_session=context.session,
        role=context.role,
        base_job_name="train",
        training_image=image,
        source_code=program.source_code,
        distributed=program.distributed,
        compute=_compute(context, config),
        networking=_networking(context),
        stopping_condition=_stopping_condition(config),
        output_data_config=OutputDataConfig(
            s3_output_path=context.run_uri("train"),
            kms_key_id=context.kms_key,
            compression_type="NONE" if config.model_compression == "none" else None,
        ),
        checkpoint_config=CheckpointConfig(
            s3_uri=f"{context.root_uri}/checkpoints/{checkpoint_key}",
            local_path=CHECKPOINTS,
        ),
        training_input_mode="FastFile" if config.input_mode == "FastFile" else "File",
        environment=program.environment,
        hyperparameters=program.hyperparameters,
        tags=[Tag(key=key, value=value) for key, value in sorted(context.tags.items())],
    )
    if program.metrics:
        metrics = [MetricDefinition(name=n, regex=r) for n, r in program.metrics]
        trainer.with_metric_definitions(metrics)
    if config.loop and config.loop.tensorboard:
        # appears at <run>/train/<job>/tensorboard-output while it runs
        trainer.with_tensorboard_output_config(
            TensorBoardOutputConfig(s3_output_path=context.run_uri("train"))
        )
    return TrainingStep(
        name="Train",
        display_name="Train",
        description=program.description,
        step_args=trainer.train(input_data_config=list(program.channels)),
        cache_config=context.cache,
        retry_policies=list(context.retries),
        # A mounted file system carries no reference to the shard step: say it (DependsOn).
        depends_on=[shard] if shard and config.fsx else None,
    )


def _compute(context: StepContext, config: TrainStepConfig) -> Compute:
    return Compute(
        instance_type=context.parameters["TrainInstanceType"],
        instance_count=context.parameters["TrainInstanceCount"],
        volume_size_in_gb=config.volume_gb,
        volume_kms_key_id=context.volume_key(config.instance_type),
        enable_managed_spot_training=config.spot,
        keep_alive_period_in_seconds=config.keep_alive_minutes * 60 or None,
        training_plan_arn=config.training_plan,
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
