"""What is refused, and what a pipeline, a group and a package look like."""

from benchmarks.parity.case_table import case
from benchmarks.parity.recording import Run
from benchmarks.parity.small_steps import SCIKIT_LEARN, definition, fail, given, joined

DESCRIBE = "sagemaker.describe_"
PARAMETER = {"Name": "N", "Type": "Integer"}
NUMBER = {"Get": "Parameters.N"}


@case()
def what_create_pipeline_refuses(run: Run) -> None:
    loop = [fail("A", "a") | {"DependsOn": ["B"]}, fail("B", "b") | {"DependsOn": ["A"]}]
    age = {"CacheConfig": {"Enabled": True, "ExpireAfter": "one day"}}
    wrong = {
        "no-json": "{",
        "no-steps": definition([]),
        "no-such-type": definition([{"Name": "A", "Type": "Nothing", "Arguments": {}}]),
        "same-name": definition([fail("A", "a"), fail("A", "b")]),
        "a-loop": definition(loop),
        "unknown-step": definition([fail("A", "a") | {"DependsOn": ["No"]}]),
        "unknown-parameter": definition([fail("A", {"Get": "Parameters.No"})]),
        "after-fail": definition([fail("A", "a"), fail("B", "b") | {"DependsOn": ["A"]}]),
        "no-duration": definition([fail("A", "a") | age]),
        "number-in-text": definition([fail("A", NUMBER)], PARAMETER),
    }
    for name, text in wrong.items():
        run.create(name, text)


@case()
def what_start_refuses(run: Run) -> None:
    run.create("starts", definition([fail("A", joined(NUMBER))], PARAMETER))
    run.start("starts")
    run.start("starts", **given(N="x"))
    run.start("starts", **given(Other="1"))
    run.start("nobody")


@case()
def what_does_not_exist(run: Run) -> None:
    execution = run.arn("sagemaker", f"pipeline/{run.name('no')}/execution/abcdefghijkl")
    named = {"PipelineName": run.name("no")}
    run.call(f"{DESCRIBE}pipeline", **named)
    run.call("sagemaker.delete_pipeline", **named)
    run.call(f"{DESCRIBE}pipeline_execution", PipelineExecutionArn=execution)
    run.call("sagemaker.stop_pipeline_execution", PipelineExecutionArn=execution)
    run.call("sagemaker.send_pipeline_execution_step_success", CallbackToken="abcdefghij")
    run.call(f"{DESCRIBE}training_job", TrainingJobName=run.name("no"))
    run.call(f"{DESCRIBE}processing_job", ProcessingJobName=run.name("no"))
    run.call(f"{DESCRIBE}transform_job", TransformJobName=run.name("no"))
    tuning = {"HyperParameterTuningJobName": "no-such-tuning-job"}
    run.call(f"{DESCRIBE}hyper_parameter_tuning_job", **tuning)
    run.call(f"{DESCRIBE}model", ModelName=run.name("no"))
    run.call(f"{DESCRIBE}endpoint", EndpointName=run.name("no"))
    run.call(f"{DESCRIBE}model_package_group", ModelPackageGroupName=run.name("no"))


@case()
def a_pipeline_described(run: Run) -> None:
    run.create("shown", definition([fail("A", "a")]))
    run.call(f"{DESCRIBE}pipeline", PipelineName=run.name("shown"))
    run.call("sagemaker.list_pipeline_executions", PipelineName=run.name("shown"))
    run.create("shown", definition([fail("A", "b")]))


@case()
def model_packages_of_a_group(run: Run) -> None:
    group = {"ModelPackageGroupName": run.name("group")}
    run.call("sagemaker.create_model_package_group", **group)
    run.later("sagemaker.delete_model_package_group", **group)
    container = {
        "Image": run.image(SCIKIT_LEARN), "ModelDataUrl": f"s3://{run.place.bucket}/model.tar.gz"
    }  # fmt: skip
    spec = {"Containers": [container], "SupportedContentTypes": ["text/csv"],
            "SupportedResponseMIMETypes": ["text/csv"]}  # fmt: skip
    made = run.call("sagemaker.create_model_package", **group, InferenceSpecification=spec)
    if made:
        package = {"ModelPackageName": made["ModelPackageArn"]}
        run.later("sagemaker.delete_model_package", **package)
        run.call(f"{DESCRIBE}model_package", **package)
    run.call("sagemaker.create_model_package_group", **group)
