"""A tuning job of two trials with AWS's XGBoost, and a batch transform of a script's model."""

import io
import tarfile

from benchmarks.parity.case_table import MACHINES, case
from benchmarks.parity.recording import Run
from benchmarks.parity.scrubbing import Packed
from benchmarks.parity.small_steps import (
    SCIKIT_LEARN,
    XGBOOST,
    definition,
    fail,
    joined,
    machine,
)

ROWS = "".join(f"{2 * n},{n},{n % 3}\n" for n in range(20))
HANDLERS = """def model_fn(model_dir): return 2
def transform_fn(model, body, content_type, accept):
    text = body.decode() if isinstance(body, bytes) else body
    return "\\n".join(str(model * float(line)) for line in text.split()) + "\\n", accept
"""


def put(run: Run, key: str, body: bytes) -> str:
    """Write an object of the run's bucket; return its URI. The bucket is emptied at the end."""
    key = f"{run.name('data')}/{key}"
    run.quietly("s3.put_object", Bucket=run.place.bucket, Key=key, Body=body)
    shown = {"Bucket": run.place.bucket, "Key": key}
    source = body if isinstance(body, Packed) else body.decode()
    run.note("s3.put_object", {**shown, "Body": source}, {})
    return f"s3://{run.place.bucket}/{key}"


@case(training=2)
def a_search_of_two_trials(run: Run) -> None:
    uri = put(run, "train/rows.csv", ROWS.encode())
    tuned = {"Name": "Tune", "Type": "Tuning", "Arguments": _search(run, uri.rpartition("/")[0])}
    best = {"Get": "Steps.Tune.BestTrainingJob.TrainingJobStatus"}
    status = {"Get": "Steps.Tune.HyperParameterTuningJobStatus"}
    run.create("tunes", definition([tuned, fail("Tell", joined(best, status))]))
    arn = run.executed("tunes")
    if arn:
        _note_trials(run, arn)


@case()
def a_resource_limit_is_tried_again(run: Run) -> None:
    """No quota lets one search have so many jobs: it is refused, and nothing starts."""
    policy = {"ExceptionType": ["SageMaker.RESOURCE_LIMIT"], "IntervalSeconds": 1, "MaxAttempts": 2}
    search = _search(run, f"s3://{run.place.bucket}/none", jobs=1_000_000)
    step = {"Name": "Tune", "Type": "Tuning", "Arguments": search, "RetryPolicies": [policy]}
    run.create("large", definition([step]))
    run.executed("large")


def _search(run: Run, data: str, jobs: int = 2) -> dict:
    limits = {"MaxNumberOfTrainingJobs": jobs, "MaxParallelTrainingJobs": 2}
    depth = {"Name": "max_depth", "MinValue": "1", "MaxValue": "3", "ScalingType": "Linear"}
    source = {"S3DataType": "S3Prefix", "S3Uri": data, "S3DataDistributionType": "FullyReplicated"}
    channels = [
        {"ChannelName": name, "DataSource": {"S3DataSource": source}, "ContentType": "text/csv"}
        for name in ("train", "validation")
    ]
    objective = {"Type": "Minimize", "MetricName": "validation:rmse"}
    trains = {
        "StaticHyperParameters": {"objective": "reg:squarederror", "num_round": "2"},
        "AlgorithmSpecification": {
            "TrainingImage": run.image(XGBOOST), "TrainingInputMode": "File"
        },
        "RoleArn": run.place.role,
        "InputDataConfig": channels,
        "OutputDataConfig": {"S3OutputPath": f"s3://{run.place.bucket}/models"},
        "ResourceConfig": machine("training") | {"VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": MACHINES["training"].seconds},
    }  # fmt: skip
    return {
        "HyperParameterTuningJobConfig": {
            "Strategy": "Random",
            "RandomSeed": 7,
            "ResourceLimits": limits,
            "HyperParameterTuningJobObjective": objective,
            "ParameterRanges": {"IntegerParameterRanges": [depth]},
        },
        "TrainingJobDefinition": trains,
    }


def _note_trials(run: Run, arn: str) -> None:
    """Record the statuses; metrics and chosen values are the search's own."""
    steps = run.quietly("sagemaker.list_pipeline_execution_steps", PipelineExecutionArn=arn)
    by_name = {step["StepName"]: step for step in steps["PipelineExecutionSteps"]}
    tuning = by_name["Tune"]["Metadata"].get("TuningJob")
    if not tuning:
        return
    name = {"HyperParameterTuningJobName": tuning["Arn"].rpartition("/")[2]}
    run.scrub.hide(name["HyperParameterTuningJobName"], "<id>")
    describe = "sagemaker.describe_hyper_parameter_tuning_job"
    found = run.quietly(describe, **name)
    told = ("Status", "Reason", "Counters")
    run.note(describe, name, {key: found[key] for key in found if key.endswith(told)})
    trials = "sagemaker.list_training_jobs_for_hyper_parameter_tuning_job"
    summaries = run.quietly(trials, **name)["TrainingJobSummaries"]
    shown = [{key: each[key] for key in each if key.endswith(told)} for each in summaries]
    run.note(trials, name, {"TrainingJobSummaries": shown})


@case(transform=1)
def a_batch_transform(run: Run) -> None:
    data, model = put(run, "in/a.csv", b"1\n2.5\n"), {"ModelName": run.name("doubles")}
    container = {
        "Image": run.image(SCIKIT_LEARN),
        "ModelDataUrl": put(run, "model.tar.gz", _packed({"model": "none"})),
        "Environment": {
            "SAGEMAKER_PROGRAM": "inference.py",
            "SAGEMAKER_SUBMIT_DIRECTORY": put(
                run, "code.tar.gz", _packed({"inference.py": HANDLERS})
            ),
        },
    }
    owned = {"ExecutionRoleArn": run.place.role}
    run.call("sagemaker.create_model", **model, PrimaryContainer=container, **owned)
    run.later("sagemaker.delete_model", **model)
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": data}}
    arguments = {
        **model,
        "TransformInput": {"DataSource": source, "ContentType": "text/csv", "SplitType": "Line"},
        "TransformOutput": {
            "S3OutputPath": f"s3://{run.place.bucket}/{run.name('out')}",
            "Accept": "text/csv", "AssembleWith": "Line",
        },
        "TransformResources": machine("transform"),
    }  # fmt: skip
    run.create("doubles", definition([
        {"Name": "Double", "Type": "Transform", "Arguments": arguments},
        fail("Tell", {"Get": "Steps.Double.TransformJobStatus"}),
    ]))  # fmt: skip
    if run.executed("doubles"):
        key = {"Bucket": run.place.bucket, "Key": f"{run.name('out')}/a.csv.out"}
        body = run.quietly("s3.get_object", **key)["Body"].read().decode()
        run.note("s3.get_object", key, {"Body": body})


def _packed(files: dict[str, str]) -> Packed:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    packed = Packed(data.getvalue())
    packed.source = files
    return packed
