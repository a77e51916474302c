"""Definitions by the SDK's own classes, every step type that SDK 3.27 has, to validate.

python -m tests.trainyard.validate.make_definitions    # writes definitions/*.json anew

They are kept in the repository, since importing the SDK takes seconds; a slow test compares a
sample with what the SDK emits. AutoML is written by hand: SDK 3.27 has the step's class and nothing
that could make its arguments (``Session.auto_ml`` is gone), and so is the V2 request.
"""

# isort: off
import pipelines.compile.quiet_sdk  # noqa: F401 (prepares the SDK: must come first)

# isort: on

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from moto import mock_aws
from sagemaker.core.clarify import BiasConfig, DataConfig, ModelConfig, SHAPConfig
from sagemaker.core.lambda_helper import Lambda
from sagemaker.core.lineage.action import Action
from sagemaker.core.lineage.artifact import Artifact
from sagemaker.core.lineage.context import Context
from sagemaker.core.model_monitor import DatasetFormat
from sagemaker.core.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter
from sagemaker.core.processing import Processor
from sagemaker.core.shapes import (
    ProcessingInput,
    ProcessingOutput,
    ProcessingS3Input,
    ProcessingS3Output,
)
from sagemaker.core.transformer import Transformer
from sagemaker.core.workflow.conditions import (
    ConditionEquals,
    ConditionGreaterThan,
    ConditionGreaterThanOrEqualTo,
    ConditionIn,
    ConditionLessThan,
    ConditionLessThanOrEqualTo,
    ConditionNot,
    ConditionOr,
)
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.core.workflow.parameters import (
    ParameterBoolean,
    ParameterFloat,
    ParameterInteger,
    ParameterString,
)
from sagemaker.core.workflow.pipeline_context import _JobStepArguments
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.callback_step import (
    CallbackOutput,
    CallbackOutputTypeEnum,
    CallbackStep,
)
from sagemaker.mlops.workflow.check_job_config import CheckJobConfig
from sagemaker.mlops.workflow.clarify_check_step import (
    ClarifyCheckStep,
    DataBiasCheckConfig,
    ModelExplainabilityCheckConfig,
)
from sagemaker.mlops.workflow.cleanup_step import CleanupStep, S3CleanupSource
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.emr_serverless_step import EMRServerlessJobConfig, EMRServerlessStep
from sagemaker.mlops.workflow.emr_step import EMRStep, EMRStepConfig
from sagemaker.mlops.workflow.endpoint_step import EndpointConfigStep, EndpointStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.for_each_step import (
    CurrentItem,
    ForEachSelector,
    ForEachStep,
    IterationOutput,
)
from sagemaker.mlops.workflow.function_step import step as function_step
from sagemaker.mlops.workflow.inference_component_step import InferenceComponentStep
from sagemaker.mlops.workflow.lambda_step import LambdaOutput, LambdaOutputTypeEnum, LambdaStep
from sagemaker.mlops.workflow.lineage_step import (
    LineageAssociation,
    LineageEntityReference,
    LineageStep,
)
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.monitor_batch_transform_step import MonitorBatchTransformStep
from sagemaker.mlops.workflow.notebook_job_step import NotebookJobStep
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.pipeline_experiment_config import PipelineExperimentConfig
from sagemaker.mlops.workflow.quality_check_step import (
    DataQualityCheckConfig,
    ModelQualityCheckConfig,
    QualityCheckStep,
)
from sagemaker.mlops.workflow.retry import (
    SageMakerJobExceptionTypeEnum,
    SageMakerJobStepRetryPolicy,
    StepExceptionTypeEnum,
    StepRetryPolicy,
)
from sagemaker.mlops.workflow.step_dependency import StepDependency, TriggerCondition
from sagemaker.mlops.workflow.steps import (
    CacheConfig,
    JobStep,
    ProcessingStep,
    TrainingStep,
    TransformStep,
    TuningStep,
)
from sagemaker.serve.model_builder import ModelBuilder
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import (
    Channel,
    Compute,
    DataSource,
    OutputDataConfig,
    S3DataSource,
    SourceCode,
    StoppingCondition,
)
from sagemaker.train.distributed import MPI, Torchrun
from sagemaker.train.tuner import HyperparameterTuner

from pipelines.compile.compile_session import CompileSession

FOLDER = Path(__file__).parent / "definitions"
ROLE = "arn:aws:iam::111122223333:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
BUCKET = "s3://example-bucket"
CACHE = CacheConfig(enable_caching=True, expire_after="P30D")
RETRIES = [
    StepRetryPolicy([StepExceptionTypeEnum.THROTTLING], max_attempts=3),
    SageMakerJobStepRetryPolicy(
        [SageMakerJobExceptionTypeEnum.CAPACITY_ERROR], expire_after_mins=60
    ),
]


def session() -> CompileSession:
    return CompileSession("us-east-1", "example-bucket", "definitions")


def process(name="Process", *, files=(), arguments=(), uri=f"{BUCKET}/raw", **fields):
    """A Processing step with the input ``data`` and the output ``out``."""
    processor = Processor(
        role=ROLE,
        image_uri=IMAGE,
        instance_count=fields.pop("instance_count", 1),
        instance_type=fields.pop("instance_type", "ml.m5.xlarge"),
        entrypoint=["python3", "/opt/ml/processing/input/code/job.py"],
        env={"MODE": "fast"},
        sagemaker_session=session(),
    )
    source = ProcessingS3Input(
        s3_uri=uri,
        s3_data_type="S3Prefix",
        local_path="/opt/ml/processing/input/data",
        s3_input_mode="File",
    )
    target = ProcessingS3Output(
        s3_uri=f"{BUCKET}/out", local_path="/opt/ml/processing/output", s3_upload_mode="EndOfJob"
    )
    args = processor.run(
        inputs=[ProcessingInput(input_name="data", s3_input=source)],
        outputs=[ProcessingOutput(output_name="out", s3_output=target)],
        arguments=list(arguments) or None,
    )
    return ProcessingStep(name=name, step_args=args, property_files=list(files), **fields)


class OfflineTrainer(ModelTrainer):
    """A ModelTrainer of the SDK that asks AWS nothing."""

    def _resolve_staging_bucket(self) -> tuple[str, str | None]:
        return self.sagemaker_session.default_bucket(), None


def trainer(**fields) -> OfflineTrainer:
    return OfflineTrainer(
        sagemaker_session=session(),
        role=ROLE,
        base_job_name="train",
        training_image=IMAGE,
        source_code=SourceCode(source_dir=f"{BUCKET}/code/", entry_script="train.py"),
        compute=Compute(
            instance_type=fields.pop("instance_type", "ml.g5.xlarge"),
            instance_count=fields.pop("instance_count", 1),
            volume_size_in_gb=50,
        ),
        output_data_config=OutputDataConfig(s3_output_path=f"{BUCKET}/models"),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=3600),
        **fields,
    )


def channel(uri=f"{BUCKET}/train", name="train", mode="File") -> Channel:
    source = S3DataSource(
        s3_data_type="S3Prefix", s3_uri=uri, s3_data_distribution_type="FullyReplicated"
    )
    return Channel(
        channel_name=name, input_mode=mode, data_source=DataSource(s3_data_source=source)
    )


def train(name="Train", uri=f"{BUCKET}/train", **fields) -> TrainingStep:
    own = {
        k: fields.pop(k) for k in ("cache_config", "retry_policies", "depends_on") if k in fields
    }
    return TrainingStep(
        name=name, step_args=trainer(**fields).train(input_data_config=[channel(uri)]), **own
    )


def builder(data) -> ModelBuilder:
    return ModelBuilder(
        s3_model_data_url=data, image_uri=IMAGE, role_arn=ROLE, sagemaker_session=session()
    )


def register(data=f"{BUCKET}/model.tar.gz", name="Register", **fields) -> ModelStep:
    args = builder(data).register(
        model_package_group_name=fields.pop("group", "models"),
        content_types=["application/json"],
        response_types=["application/json"],
        inference_instances=["ml.m5.large"],
        transform_instances=["ml.m5.large"],
        **fields,
    )
    return ModelStep(name=name, step_args=args)


def function(name="Function", outputs=(), inputs=None, **fields) -> LambdaStep:
    arn = "arn:aws:lambda:us-east-1:111122223333:function:notify"
    outputs = [LambdaOutput(output_name=n, output_type=t) for n, t in outputs]
    return LambdaStep(
        name=name,
        lambda_func=Lambda(function_arn=arn),
        inputs=inputs or {},
        outputs=outputs,
        **fields,
    )


def pipeline(*steps, parameters=(), **fields) -> Pipeline:
    return Pipeline(
        name="example",
        parameters=list(parameters),
        steps=list(steps),
        sagemaker_session=session(),
        **fields,
    )


REPORT = PropertyFile(name="Report", output_name="out", path="report.json")


def metric(path="metrics.accuracy.value", step="Process") -> JsonGet:
    return JsonGet(step_name=step, property_file="Report", json_path=path)


def processing() -> Pipeline:
    uri = ParameterString("Uri", default_value=f"{BUCKET}/raw")
    count = ParameterInteger("Count", default_value=2)
    step = process(uri=uri, instance_count=count, arguments=["--n", count.to_string()])
    return pipeline(step, parameters=[uri, count])


def processing_chain() -> Pipeline:
    first = process("First", cache_config=CACHE, retry_policies=RETRIES)
    out = first.properties.ProcessingOutputConfig.Outputs["out"].S3Output.S3Uri
    second = process("Second", uri=out)
    third = process("Third", uri=Join(on="/", values=[out, "part"]), depends_on=[second])
    return pipeline(first, second, third)


def training() -> Pipeline:
    kind = ParameterString(
        "Kind", default_value="ml.g5.xlarge", enum_values=["ml.g5.xlarge", "ml.g5.2xlarge"]
    )
    steps = ParameterInteger("Steps", default_value=100)
    step = train(
        instance_type=kind,
        cache_config=CACHE,
        hyperparameters={"steps": steps.to_string(), "name": "x"},
        environment={"RUN": ExecutionVariables.PIPELINE_EXECUTION_ID},
    )
    return pipeline(step, parameters=[kind, steps])


def training_torchrun() -> Pipeline:
    return pipeline(train(distributed=Torchrun(process_count_per_node=4), instance_count=2))


def training_mpi() -> Pipeline:
    return pipeline(train(distributed=MPI(process_count_per_node=1), retry_policies=RETRIES))


def experiment() -> Pipeline:
    name = ParameterString("Experiment", default_value="mine")
    config = PipelineExperimentConfig(name, ExecutionVariables.PIPELINE_EXECUTION_ID)
    return pipeline(train(), parameters=[name], pipeline_experiment_config=config)


def tuner() -> HyperparameterTuner:
    return HyperparameterTuner(
        model_trainer=trainer(hyperparameters={"epochs": "3"}),
        objective_metric_name="loss",
        objective_type="Minimize",
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        hyperparameter_ranges={
            "lr": ContinuousParameter(1e-5, 1e-1, scaling_type="Logarithmic"),
            "layers": IntegerParameter(1, 8),
            "optimizer": CategoricalParameter(["adam", "sgd"]),
        },
        max_jobs=4,
        max_parallel_jobs=2,
    )


def tuning() -> Pipeline:
    return pipeline(TuningStep(name="Tune", step_args=tuner().tune(inputs=[channel()])))


def tuning_register() -> Pipeline:
    step = TuningStep(name="Tune", step_args=tuner().tune(inputs=[channel()]))
    best = step.properties.BestTrainingJob.TrainingJobName
    uri = Join(on="/", values=[f"{BUCKET}/models", best, "output/model.tar.gz"])
    return pipeline(step, register(uri))


def tuning_top_model() -> Pipeline:
    """The SDK's own join: "s3:/" and the bucket, with "/" between them."""
    step = TuningStep(name="Tune", step_args=tuner().tune(inputs=[channel()]))
    uri = step.get_top_model_s3_uri(top_k=0, s3_bucket="example-bucket", prefix="models")
    bucket = ParameterString("Bucket", default_value="example-bucket")
    second = step.get_top_model_s3_uri(top_k=1, s3_bucket=bucket)
    steps = (step, register(uri), register(second, name="RegisterSecond"))
    return pipeline(*steps, parameters=[bucket])


def transformer(model="my-model") -> Transformer:
    return Transformer(
        model_name=model,
        instance_count=1,
        instance_type="ml.m5.xlarge",
        output_path=f"{BUCKET}/scores",
        base_transform_job_name="batch",
        sagemaker_session=session(),
    )


def transform() -> Pipeline:
    args = transformer().transform(data=f"{BUCKET}/batch", content_type="text/csv")
    return pipeline(TransformStep(name="Transform", step_args=args, cache_config=CACHE))


def model() -> Pipeline:
    step = train()
    made = builder(step.properties.ModelArtifacts.S3ModelArtifacts)
    create = ModelStep(name="Create", step_args=made.build(model_name="made"))
    args = transformer(create.properties.ModelName).transform(data=f"{BUCKET}/batch")
    return pipeline(step, create, TransformStep(name="Transform", step_args=args))


def registration() -> Pipeline:
    status = ParameterString("Status", default_value="PendingManualApproval")
    step = train()
    return pipeline(
        step,
        register(
            step.properties.ModelArtifacts.S3ModelArtifacts,
            approval_status=status,
            customer_metadata_properties={"job": step.properties.TrainingJobName},
        ),
        parameters=[status],
    )


def gate() -> Pipeline:
    least = ParameterFloat("Least", default_value=0.8)
    step = process(files=[REPORT])
    fail = FailStep(name="Bad", error_message=Join(on=" ", values=["accuracy", metric()]))
    condition = ConditionStep(
        name="Gate",
        conditions=[ConditionGreaterThanOrEqualTo(left=metric(), right=least)],
        if_steps=[register()],
        else_steps=[fail],
    )
    return pipeline(step, condition, parameters=[least])


def conditions() -> Pipeline:
    flag, word = ParameterBoolean("Flag", default_value=True), ParameterString("Word", "a")
    count, rate = ParameterInteger("Number", 3), ParameterFloat("Rate", 0.5)
    step = process(files=[REPORT])
    checks = [
        ConditionEquals(left=flag, right=True),
        ConditionGreaterThan(left=count, right=rate),
        ConditionLessThan(left=count, right=10),
        ConditionLessThanOrEqualTo(left=metric(), right=rate),
        ConditionIn(value=word, in_values=["a", "b"]),
        ConditionNot(ConditionEquals(left=word, right="z")),
        ConditionOr([ConditionEquals(left=count, right=1), ConditionEquals(left=count, right=3)]),
        ConditionEquals(left=step.properties.ProcessingJobStatus, right="Completed"),
    ]
    branch = ConditionStep(name="Check", conditions=checks, if_steps=[train()], else_steps=[])
    return pipeline(step, branch, parameters=[flag, word, count, rate])


def nested_conditions() -> Pipeline:
    deep = ParameterBoolean("Deep", default_value=False)
    inner = ConditionStep(
        name="Inner",
        conditions=[ConditionEquals(left=deep, right=True)],
        if_steps=[train("Long")],
        else_steps=[train("Short")],
    )
    outer = ConditionStep(
        name="Outer", conditions=[ConditionEquals(left=deep, right=True)], if_steps=[inner]
    )
    return pipeline(outer, parameters=[deep])


def lambdas() -> Pipeline:
    first = function(
        outputs=[("uri", LambdaOutputTypeEnum.String), ("count", LambdaOutputTypeEnum.Integer)],
        inputs={"run": ExecutionVariables.PIPELINE_EXECUTION_ID, "limit": 3},
        cache_config=CACHE,
    )
    step = process(
        uri=first.properties.Outputs["uri"], instance_count=first.properties.Outputs["count"]
    )
    return pipeline(first, step)


def callback() -> Pipeline:
    step = CallbackStep(
        name="Ask",
        sqs_queue_url="https://sqs.us-east-1.amazonaws.com/111122223333/queue",
        inputs={"question": "ok?"},
        outputs=[CallbackOutput(output_name="ok", output_type=CallbackOutputTypeEnum.Boolean)],
    )
    branch = ConditionStep(
        name="Answered",
        conditions=[ConditionEquals(left=step.properties.Outputs["ok"], right=True)],
        if_steps=[train()],
    )
    return pipeline(step, branch)


def triggers() -> Pipeline:
    step = train()
    return pipeline(
        step,
        function("OnFailure", depends_on=[StepDependency(step, TriggerCondition.FAILED)]),
        function("Always", depends_on=[StepDependency(step, TriggerCondition.ANY)]),
    )


def emr() -> Pipeline:
    config = EMRStepConfig(
        jar="s3://us-east-1.elasticmapreduce/libs/script-runner/script-runner.jar",
        args=["--run"],
        output_args={"output": f"{BUCKET}/emr"},
    )
    step = EMRStep("Spark", "Spark", "on a cluster", "j-1ABCDEFGHIJKL", config, cache_config=CACHE)
    return pipeline(step, process(uri=step.emr_outputs["output"]))


def emr_cluster() -> Pipeline:
    cluster = {
        "Applications": [{"Name": "Spark"}],
        "ReleaseLabel": "emr-7.1.0",
        "JobFlowRole": "EMR_EC2_DefaultRole",
        "ServiceRole": "EMR_DefaultRole",
        "Instances": {
            "InstanceGroups": [
                {"InstanceRole": "MASTER", "InstanceCount": 1, "InstanceType": "m5.xlarge"}
            ]
        },
    }
    config = EMRStepConfig(jar=f"{BUCKET}/job.jar", main_class="org.example.Main")
    return pipeline(EMRStep("Spark", "Spark", "new", None, config, cluster_config=cluster))


def emr_serverless() -> Pipeline:
    config = EMRServerlessJobConfig(
        job_driver={"sparkSubmit": {"entryPoint": f"{BUCKET}/job.py"}}, execution_role_arn=ROLE
    )
    step = EMRServerlessStep("Spark", "Spark", "serverless", config, application_id="00f1abcd")
    new = EMRServerlessStep(
        "New",
        "New",
        "its own application",
        config,
        application_config={"releaseLabel": "emr-7.1.0", "type": "SPARK"},
        depends_on=[step],
    )
    return pipeline(step, new)


def notebook() -> Pipeline:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work.ipynb"
        path.write_text("{}")
        step = NotebookJobStep(
            name="Notebook",
            input_notebook=str(path),
            image_uri="236514542706.dkr.ecr.us-east-1.amazonaws.com/sagemaker-base-python-38",
            kernel_name="python3",
            role=ROLE,
            s3_root_uri=f"{BUCKET}/notebooks",
        )
        made = pipeline(step, process(uri=step.properties.NotebookJobOutputLocationPrefix))
        return _Ready(made.definition())


class _Ready:
    """A definition whose files are gone already."""

    def __init__(self, body: str) -> None:
        self.body = body

    def definition(self) -> str:
        return self.body


def decorated() -> Pipeline:
    @function_step(
        name="Compute",
        description="A function",  # by default the path of its file
        instance_type="ml.m5.xlarge",
        image_uri=IMAGE,
        role=ROLE,
        keep_alive_period_in_seconds=60,
    )
    def compute(x: int) -> dict:
        return {"value": x}

    result = compute(3)
    branch = ConditionStep(
        name="Enough",
        conditions=[ConditionGreaterThan(left=result["value"], right=2)],
        if_steps=[train()],
    )
    return pipeline(result, branch)


def check_job() -> CheckJobConfig:
    return CheckJobConfig(
        role=ROLE,
        instance_count=1,
        instance_type="ml.c5.xlarge",
        volume_size_in_gb=60,
        sagemaker_session=session(),
    )


def data_quality() -> Pipeline:
    step = QualityCheckStep(
        name="Quality",
        quality_check_config=DataQualityCheckConfig(
            baseline_dataset=f"{BUCKET}/train.csv",
            dataset_format=DatasetFormat.csv(header=True),
            output_s3_uri=f"{BUCKET}/quality",
        ),
        check_job_config=check_job(),
        skip_check=ParameterBoolean("Skip", default_value=False),
        model_package_group_name="models",
    )
    after = process(uri=step.properties.CalculatedBaselineStatistics)
    return pipeline(step, after, parameters=[ParameterBoolean("Skip", default_value=False)])


def model_quality() -> Pipeline:
    step = QualityCheckStep(
        name="Quality",
        quality_check_config=ModelQualityCheckConfig(
            baseline_dataset=f"{BUCKET}/scores.csv",
            dataset_format=DatasetFormat.csv(header=True),
            output_s3_uri=f"{BUCKET}/quality",
            problem_type="Regression",
            inference_attribute="_c0",
            ground_truth_attribute="_c1",
        ),
        check_job_config=check_job(),
        register_new_baseline=True,
    )
    return pipeline(step)


def data_config() -> DataConfig:
    return DataConfig(
        s3_data_input_path=f"{BUCKET}/train.csv",
        s3_output_path=f"{BUCKET}/clarify",
        label="y",
        headers=["y", "a", "b"],
    )


def data_bias() -> Pipeline:
    bias = BiasConfig(label_values_or_threshold=[1], facet_name="a", facet_values_or_threshold=[0])
    config = DataBiasCheckConfig(data_config=data_config(), data_bias_config=bias)
    return pipeline(ClarifyCheckStep("Bias", config, check_job(), cache_config=CACHE))


def explainability() -> Pipeline:
    config = ModelExplainabilityCheckConfig(
        data_config=data_config(),
        model_config=ModelConfig(
            model_name="made", instance_count=1, instance_type="ml.m5.large", accept_type="text/csv"
        ),
        explainability_config=SHAPConfig(
            baseline=[[0, 0]], num_samples=10, agg_method="mean_abs", seed=1
        ),
    )
    return pipeline(ClarifyCheckStep("Explain", config, check_job()))


def monitored_transform() -> Pipeline:
    steps = MonitorBatchTransformStep(
        name="Batch",
        transform_step_args=transformer().transform(data=f"{BUCKET}/batch"),
        monitor_configuration=DataQualityCheckConfig(
            baseline_dataset=f"{BUCKET}/train.csv", dataset_format=DatasetFormat.csv()
        ),
        check_job_configuration=check_job(),
        monitor_before_transform=True,
    )
    return pipeline(*steps.steps)  # SDK 3.27 does not take the collection itself


def endpoint() -> Pipeline:
    config = EndpointConfigStep(
        name="Config",
        step_args=session().create_endpoint_config(
            name="config",
            production_variants=[
                {
                    "VariantName": "all",
                    "ModelName": "made",
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": 1,
                }
            ],
        ),
    )
    live = EndpointStep(
        name="Endpoint",
        step_args=session().create_endpoint(
            endpoint_name="live", config_name=config.properties.EndpointConfigName
        ),
    )
    component = InferenceComponentStep(
        name="Component",
        step_args=session().create_inference_component(
            inference_component_name="part",
            endpoint_name=live.properties.EndpointName,
            variant_name="all",
            specification={
                "ModelName": "made",
                "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024},
            },
            runtime_config={"CopyCount": 1},
        ),
    )
    return pipeline(config, live, component)


def lineage() -> Pipeline:
    step = LineageStep(
        name="Record",
        actions=Action.create(
            action_name="run",
            source_uri=f"{BUCKET}/run",
            action_type="Training",
            sagemaker_session=session(),
        ),
        artifacts=Artifact.create(
            artifact_name="data",
            source_uri=f"{BUCKET}/train",
            artifact_type="DataSet",
            sagemaker_session=session(),
        ),
        contexts=Context.create(
            context_name="project",
            source_uri=f"{BUCKET}/project",
            context_type="Project",
            sagemaker_session=session(),
        ),
        associations=[
            LineageAssociation(
                LineageEntityReference("data", "Artifact"),
                LineageEntityReference("run", "Action"),
                "ContributedTo",
            )
        ],
    )
    after = function("Tell", inputs={"arn": step.properties.ArtifactArns["data"]})
    return pipeline(step, after)


def cleanup() -> Pipeline:
    first, second = train(), process()
    step = CleanupStep(
        "Clean", [S3CleanupSource(first), S3CleanupSource(second, [f"{BUCKET}/out/part-0.csv"])]
    )
    return pipeline(first, second, step)


def for_each() -> Pipeline:
    items = ParameterString("Items", default_value='["a", "b"]')
    body = function(
        "Score", outputs=[("score", LambdaOutputTypeEnum.Float)], inputs={"item": CurrentItem()}
    )
    loop = ForEachStep(
        "Loop",
        iterable_items=items,
        max_concurrency=2,
        for_each_body=[body],
        selector=ForEachSelector("MaxBy", IterationOutput(body).OutputParameters["score"]),
    )
    properties = loop.properties
    after = function(
        "After",
        inputs={
            "best": properties.Selected.OutputParameters["score"],
            "first": properties.IterationOutputs[0].Score.OutputParameters["score"],
            "failed": properties.FailedStepCount,
        },
    )
    return pipeline(loop, after, parameters=[items])


class _Producer:
    """Has the session that a JobStep asks for its captured request."""

    def __init__(self, request: dict) -> None:
        self.sagemaker_session = session()
        self.request = request

    def create(self) -> None:
        self.sagemaker_session.context = _JobStepArguments("create_job", self.request)


def job() -> Pipeline:
    from sagemaker.core.workflow.pipeline_context import _StepArguments

    request = {
        "JobName": "job",
        "RoleArn": ROLE,
        "JobCategory": "AgentRFT",
        "JobConfigSchemaVersion": "1.0.0",
        "JobConfigDocument": {"OutputDataConfig": {"S3OutputPath": f"{BUCKET}/job"}},
    }
    producer = _Producer(request)
    args = _StepArguments("create_job", _Producer.create, producer)
    step = JobStep(name="Job", step_args=args)
    return pipeline(step, function("Tell", inputs={"arn": step.properties.JobArn}))


BUILDERS: dict[str, Callable] = {
    made.__name__: made
    for made in (
        processing,
        processing_chain,
        training,
        training_torchrun,
        training_mpi,
        experiment,
        tuning,
        tuning_register,
        tuning_top_model,
        transform,
        model,
        registration,
        gate,
        conditions,
        nested_conditions,
        lambdas,
        callback,
        triggers,
        emr,
        emr_cluster,
        emr_serverless,
        notebook,
        decorated,
        data_quality,
        model_quality,
        data_bias,
        explainability,
        monitored_transform,
        endpoint,
        lineage,
        cleanup,
        for_each,
        job,
    )
}
_CHANGING = re.compile(r"\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-\d{3}|[0-9a-f]{64}")


def build(name: str) -> str:
    """The definition as the SDK emits it, without the timestamps and hashes of this moment."""
    with mock_aws():
        session().boto_session.client("s3").create_bucket(Bucket="example-bucket")
        body = BUILDERS[name]().definition()
    return _CHANGING.sub("2026-01-01-00-00-00-000", body)


def main() -> None:
    """Write every definition; what cannot be built is said and left as it was."""
    for name in BUILDERS:
        (FOLDER / f"{name}.json").write_text(json.dumps(json.loads(build(name)), indent=1) + "\n")


if __name__ == "__main__":
    main()
