"""A pipeline whose steps cover the page's parts: two attempts, cached, failed, with files."""

from tests.trainyard.emulator.harness import (
    Cloud,
    compare,
    condition_step,
    json_get,
    process_step,
    s3_input,
    train_step,
    until,
)

CACHE = {"Enabled": True, "ExpireAfter": "P30D"}
RETRY = {
    "ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"],
    "IntervalSeconds": 2,
    "BackoffRate": 1.0,
    "MaxAttempts": 3,
}
WRITES = (
    "echo preparing; cd /opt/ml/processing/out; "
    """printf 'a,b\\n1,<b>two</b>\\n' > rows.csv; echo '{"loss": 0.25, "n": 3}' > scores.json"""
)
FAILS = "python3 -c \"rows = int(open('/opt/ml/processing/raw/x').read())\""
SECRET = "hunter2-hunter2"


def steps(lr: str = "0.1") -> list[dict]:
    """Return the steps: Prepare is cached; Train has hyperparameters; Read has two attempts and
    fails.
    """
    prepare = process_step(
        "Prepare", WRITES, outputs={"out": "s3://bkt/prepared"}, CacheConfig=CACHE,
        PropertyFiles=[{"PropertyFileName": "s", "OutputName": "out", "FilePath": "scores.json"}],
    )  # fmt: skip
    named = {"HyperParameters": {"lr": {"Get": "Parameters.Rate"}, "epochs": "3"}}
    named["Environment"] = {"DB_PASSWORD": SECRET, "MODE": "fast"}
    script = "echo loss=0.5; echo weights > /opt/ml/model/w"
    measured = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    train = train_step("Train", script, arguments=named, CacheConfig=CACHE, DependsOn=["Prepare"])
    train["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = measured
    read = process_step("Read", FAILS, RetryPolicies=[RETRY], depends_on=("Train",))
    read["Arguments"]["ProcessingInputs"] = [s3_input("raw", "s3://bkt/raw/x")]
    low = compare("LessThan", json_get("Prepare", "s", "loss"), 1.0)
    check = condition_step("Check", [low], [read], [], DependsOn=["Train"])
    return [prepare, train, check]


RATE = {"Name": "Rate", "Type": "String", "DefaultValue": "0.1"}


def run(cloud: Cloud, name: str, rate: str, *, fault: bool = False) -> str:
    """Run the pipeline to its end; return the id. ``fault``: Read's first job fails by the service.

    The fault is real: the input is missing on the emulator's disk until the job has failed.
    """
    cloud.put("raw/x", "no number")
    path = cloud.endpoint.app.objects.path("bkt", "raw/x")
    hidden = path.rename(path.with_suffix(".hidden")) if fault else None
    arn = cloud.start(name, {"Rate": rate})
    if hidden:
        until(lambda: _jobs(cloud, arn, "Failed"))
        hidden.rename(path)
    cloud.ended(arn)
    return arn.rpartition("/")[2]


def _jobs(cloud: Cloud, arn: str, status: str) -> list[dict]:
    named = f"pipelines-{arn.rpartition('/')[2]}-Read"
    listed = cloud.sm.list_processing_jobs(NameContains=named, StatusEquals=status)
    return listed["ProcessingJobSummaries"]
