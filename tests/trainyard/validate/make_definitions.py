"""Definitions by the SDK's own classes, to validate: the step types that most pipelines have.

python -m tests.trainyard.validate.make_definitions    # writes these of definitions/*.json anew

They are kept in the repository, since importing the SDK takes seconds; a slow test compares a
sample with what the SDK emits. Those of the other step types are kept as SDK 3.27 emitted them, but
for AutoML's, which are written by hand: it has nothing that could make their arguments.
"""

# isort: off
import pipelines.compile.quiet_sdk  # noqa: F401 (prepares the SDK: must come first)

# isort: on

import json
import re
from pathlib import Path

from moto import mock_aws
from sagemaker.core import shapes
from sagemaker.core.lambda_helper import Lambda
from sagemaker.core.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter
from sagemaker.core.processing import Processor
from sagemaker.core.transformer import Transformer
from sagemaker.core.workflow import conditions as on
from sagemaker.core.workflow import parameters as given
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow import callback_step as callbacks
from sagemaker.mlops.workflow import for_each_step as loops
from sagemaker.mlops.workflow import retry
from sagemaker.mlops.workflow import steps as kinds
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.lambda_step import LambdaOutput, LambdaOutputTypeEnum, LambdaStep
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.pipeline_experiment_config import PipelineExperimentConfig
from sagemaker.mlops.workflow.step_dependency import StepDependency, TriggerCondition
from sagemaker.serve.model_builder import ModelBuilder
from sagemaker.train import ModelTrainer, configs
from sagemaker.train.distributed import MPI, Torchrun
from sagemaker.train.tuner import HyperparameterTuner

from pipelines.compile.compile_session import CompileSession

FOLDER = Path(__file__).parent / "definitions"
ROLE = "arn:aws:iam::111122223333:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
BUCKET = "s3://example-bucket"
CACHE = kinds.CacheConfig(enable_caching=True, expire_after="P30D")
RETRIES = [
    retry.StepRetryPolicy([retry.StepExceptionTypeEnum.THROTTLING], max_attempts=3),
    retry.SageMakerJobStepRetryPolicy(
        [retry.SageMakerJobExceptionTypeEnum.CAPACITY_ERROR], expire_after_mins=60
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
    source = shapes.ProcessingS3Input(
        s3_uri=uri,
        s3_data_type="S3Prefix",
        local_path="/opt/ml/processing/input/data",
        s3_input_mode="File",
    )
    target = shapes.ProcessingS3Output(
        s3_uri=f"{BUCKET}/out", local_path="/opt/ml/processing/output", s3_upload_mode="EndOfJob"
    )
    args = processor.run(
        inputs=[shapes.ProcessingInput(input_name="data", s3_input=source)],
        outputs=[shapes.ProcessingOutput(output_name="out", s3_output=target)],
        arguments=list(arguments) or None,
    )
    return kinds.ProcessingStep(name=name, step_args=args, property_files=list(files), **fields)


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
        source_code=configs.SourceCode(source_dir=f"{BUCKET}/code/", entry_script="train.py"),
        compute=configs.Compute(
            instance_type=fields.pop("instance_type", "ml.g5.xlarge"),
            instance_count=fields.pop("instance_count", 1),
            volume_size_in_gb=50,
        ),
        output_data_config=configs.OutputDataConfig(s3_output_path=f"{BUCKET}/models"),
        stopping_condition=configs.StoppingCondition(max_runtime_in_seconds=3600),
        **fields,
    )


def channel(uri=f"{BUCKET}/train", name="train", mode="File") -> configs.Channel:
    source = configs.S3DataSource(
        s3_data_type="S3Prefix", s3_uri=uri, s3_data_distribution_type="FullyReplicated"
    )
    return configs.Channel(
        channel_name=name, input_mode=mode, data_source=configs.DataSource(s3_data_source=source)
    )


def train(name="Train", uri=f"{BUCKET}/train", **fields) -> kinds.TrainingStep:
    own = {
        k: fields.pop(k) for k in ("cache_config", "retry_policies", "depends_on") if k in fields
    }
    return kinds.TrainingStep(
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


def pipeline(*steps, parameters=(), **fields):
    return Pipeline(
        name="example",
        parameters=list(parameters),
        steps=list(steps),
        sagemaker_session=session(),
        **fields,
    )


def equals(left, right) -> on.ConditionEquals:
    return on.ConditionEquals(left=left, right=right)


def branch(name, conditions, *then, otherwise=()) -> ConditionStep:
    return ConditionStep(
        name=name, conditions=conditions, if_steps=list(then), else_steps=list(otherwise)
    )


REPORT = PropertyFile(name="Report", output_name="out", path="report.json")


def metric(path="metrics.accuracy.value", step="Process") -> JsonGet:
    return JsonGet(step_name=step, property_file="Report", json_path=path)


def processing() -> Pipeline:
    uri = given.ParameterString("Uri", default_value=f"{BUCKET}/raw")
    count = given.ParameterInteger("Count", default_value=2)
    step = process(uri=uri, instance_count=count, arguments=["--n", count.to_string()])
    return pipeline(step, parameters=[uri, count])


def processing_chain() -> Pipeline:
    first = process("First", cache_config=CACHE, retry_policies=RETRIES)
    out = first.properties.ProcessingOutputConfig.Outputs["out"].S3Output.S3Uri
    second = process("Second", uri=out)
    third = process("Third", uri=Join(on="/", values=[out, "part"]), depends_on=[second])
    return pipeline(first, second, third)


def training() -> Pipeline:
    kind = given.ParameterString(
        "Kind", default_value="ml.g5.xlarge", enum_values=["ml.g5.xlarge", "ml.g5.2xlarge"]
    )
    steps = given.ParameterInteger("Steps", default_value=100)
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
    name = given.ParameterString("Experiment", default_value="mine")
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
    return pipeline(kinds.TuningStep(name="Tune", step_args=tuner().tune(inputs=[channel()])))


def tuning_register() -> Pipeline:
    step = kinds.TuningStep(name="Tune", step_args=tuner().tune(inputs=[channel()]))
    best = step.properties.BestTrainingJob.TrainingJobName
    uri = Join(on="/", values=[f"{BUCKET}/models", best, "output/model.tar.gz"])
    return pipeline(step, register(uri))


def tuning_top_model() -> Pipeline:
    """The SDK's own join: "s3:/" and the bucket, with "/" between them."""
    step = kinds.TuningStep(name="Tune", step_args=tuner().tune(inputs=[channel()]))
    uri = step.get_top_model_s3_uri(top_k=0, s3_bucket="example-bucket", prefix="models")
    bucket = given.ParameterString("Bucket", default_value="example-bucket")
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
    return pipeline(kinds.TransformStep(name="Transform", step_args=args, cache_config=CACHE))


def model() -> Pipeline:
    step = train()
    made = builder(step.properties.ModelArtifacts.S3ModelArtifacts)
    create = ModelStep(name="Create", step_args=made.build(model_name="made"))
    args = transformer(create.properties.ModelName).transform(data=f"{BUCKET}/batch")
    return pipeline(step, create, kinds.TransformStep(name="Transform", step_args=args))


def registration() -> Pipeline:
    status = given.ParameterString("Status", default_value="PendingManualApproval")
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
    least = given.ParameterFloat("Least", default_value=0.8)
    step = process(files=[REPORT])
    fail = FailStep(name="Bad", error_message=Join(on=" ", values=["accuracy", metric()]))
    enough = on.ConditionGreaterThanOrEqualTo(left=metric(), right=least)
    gated = branch("Gate", [enough], register(), otherwise=[fail])
    return pipeline(step, gated, parameters=[least])


def conditions() -> Pipeline:
    flag = given.ParameterBoolean("Flag", default_value=True)
    word, count = given.ParameterString("Word", "a"), given.ParameterInteger("Number", 3)
    rate = given.ParameterFloat("Rate", 0.5)
    step = process(files=[REPORT])
    checks = [
        equals(flag, True),
        on.ConditionGreaterThan(left=count, right=rate),
        on.ConditionLessThan(left=count, right=10),
        on.ConditionLessThanOrEqualTo(left=metric(), right=rate),
        on.ConditionIn(value=word, in_values=["a", "b"]),
        on.ConditionNot(equals(word, "z")),
        on.ConditionOr([equals(count, 1), equals(count, 3)]),
        equals(step.properties.ProcessingJobStatus, "Completed"),
    ]
    check = branch("Check", checks, train())
    return pipeline(step, check, parameters=[flag, word, count, rate])


def nested_conditions() -> Pipeline:
    deep = given.ParameterBoolean("Deep", default_value=False)
    inner = branch("Inner", [equals(deep, True)], train("Long"), otherwise=[train("Short")])
    outer = branch("Outer", [equals(deep, True)], inner)
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
    step = callbacks.CallbackStep(
        name="Ask",
        sqs_queue_url="https://sqs.us-east-1.amazonaws.com/111122223333/queue",
        inputs={"question": "ok?"},
        outputs=[callbacks.CallbackOutput("ok", callbacks.CallbackOutputTypeEnum.Boolean)],
    )
    answered = branch("Answered", [equals(step.properties.Outputs["ok"], True)], train())
    return pipeline(step, answered)


def triggers() -> Pipeline:
    step = train()
    return pipeline(
        step,
        function("OnFailure", depends_on=[StepDependency(step, TriggerCondition.FAILED)]),
        function("Always", depends_on=[StepDependency(step, TriggerCondition.ANY)]),
    )


def for_each() -> Pipeline:
    items = given.ParameterString("Items", default_value='["a", "b"]')
    number, item = LambdaOutputTypeEnum.Float, loops.CurrentItem()
    body = function("Score", outputs=[("score", number)], inputs={"item": item})
    score = loops.IterationOutput(body).OutputParameters["score"]
    loop = loops.ForEachStep(
        "Loop",
        iterable_items=items,
        max_concurrency=2,
        for_each_body=[body],
        selector=loops.ForEachSelector("MaxBy", score),
    )
    properties = loop.properties
    inputs = {
        "best": properties.Selected.OutputParameters["score"],
        "first": properties.IterationOutputs[0].Score.OutputParameters["score"],
        "failed": properties.FailedStepCount,
    }
    return pipeline(loop, function("After", inputs=inputs), parameters=[items])


BUILDERS = {
    name: made
    for name, made in list(globals().items())
    if getattr(made, "__annotations__", None) == {"return": Pipeline}
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
