"""QualityCheck steps over the life of baselines: skipped, supplied, registered, violated."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, cloud, processing, s3_input

pytestmark = pytest.mark.long

IMAGE = "156813124566.dkr.ecr.us-east-1.amazonaws.com/sagemaker-model-monitor-analyzer"
GOOD = "a,b\n" + "".join(f"{i},{i / 7}\n" for i in range(50))
BAD = GOOD.replace("\n7,", "\nx,")


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.put("good/data.csv", GOOD)
        running.put("bad/data.csv", BAD)
        yield running


def analysis(data: str, name: str) -> dict[str, Any]:
    """Return CreateProcessingJob's request as the SDK's QualityCheckStep compiles it."""
    source = s3_input("baseline_dataset_input", f"s3://bkt/{data}")
    output = {
        "OutputName": "monitoring_output",
        "S3Output": {
            "S3Uri": f"s3://bkt/{name}",
            "LocalPath": "/opt/ml/processing/output",
            "S3UploadMode": "EndOfJob",
        },
    }
    return processing("") | {
        "AppSpecification": {"ImageUri": IMAGE},
        "ProcessingInputs": [source],
        "ProcessingOutputConfig": {"Outputs": [output]},
        "Environment": {
            "output_path": "/opt/ml/processing/output",
            "publish_cloudwatch_metrics": "Disabled",
            "dataset_format": json.dumps({"csv": {"header": True}}),
            "dataset_source": "/opt/ml/processing/baseline_dataset_input",
        },
    }


def step(name: str, data: str, **fields: Any) -> dict[str, Any]:
    given = {
        "ModelPackageGroupName": None,
        "SkipCheck": False,
        "FailOnViolation": None,  # as the SDK writes what was not given: true
        "RegisterNewBaseline": False,
        "SuppliedBaselineStatistics": None,
        "SuppliedBaselineConstraints": None,
    }
    arguments = analysis(data, name)
    about = {"Name": name, "Type": "QualityCheck", "CheckType": "DATA_QUALITY"}
    return {**about, **given, **fields, "Arguments": arguments}


def run(aws: Cloud, one: dict[str, Any]) -> dict[str, Any]:
    """Run the step; return its entry in the execution."""
    aws.create(one["Name"], [one])
    return aws.run(one["Name"])[1][one["Name"]]


def of(name: str) -> dict[str, str]:
    """Return a supplied baseline: the one that the step of that name calculated."""
    parts = ("Statistics", "Constraints")
    return {f"SuppliedBaseline{p}": f"s3://bkt/{name}/{p.lower()}.json" for p in parts}


@pytest.mark.slow
def test_a_first_baseline_then_checks_against_it(aws: Cloud) -> None:
    first = run(aws, step("first", "good", SkipCheck=True, RegisterNewBaseline=True))
    made = first["Metadata"]["QualityCheck"]
    assert first["StepStatus"] == "Succeeded"
    assert made["CalculatedBaselineConstraints"] == "s3://bkt/first/constraints.json"
    assert made["BaselineUsedForDriftCheckStatistics"] == made["CalculatedBaselineStatistics"]
    assert json.loads(aws.get("first/statistics.json"))["dataset"]["item_count"] == 50

    none = run(aws, step("none", "good", ModelPackageGroupName="models"))
    assert none["StepStatus"] == "Failed"
    assert "no approved package of models has DriftCheckBaselines" in none["FailureReason"]

    drift = {
        "Statistics": {"ContentType": "application/json", "S3Uri": "s3://bkt/first/statistics.json"},
        "Constraints": {"ContentType": "application/json", "S3Uri": "s3://bkt/first/constraints.json"},
    }  # fmt: skip
    aws.sm.create_model_package_group(ModelPackageGroupName="models")
    aws.sm.create_model_package(
        ModelPackageGroupName="models",
        ModelApprovalStatus="Approved",
        DriftCheckBaselines={"ModelDataQuality": drift},
    )
    broken = run(aws, step("broken", "bad", ModelPackageGroupName="models"))
    assert broken["StepStatus"] == "Failed"
    assert "ClientError: Quality check failed. See violation report" in broken["FailureReason"]
    assert "a: data_type_check: Data type match requirement is not met" in broken["FailureReason"]
    made = broken["Metadata"]["QualityCheck"]
    assert made["ViolationReport"] == "s3://bkt/broken/constraint_violations.json"
    assert made["BaselineUsedForDriftCheckStatistics"] == "s3://bkt/first/statistics.json"

    told = run(aws, step("told", "bad", FailOnViolation=False, **of("first")))
    assert told["StepStatus"] == "Succeeded"
    assert json.loads(aws.get("told/constraint_violations.json"))["violations"]
    assert run(aws, step("kept", "good", **of("first")))["StepStatus"] == "Succeeded"


def test_what_the_analyser_does_not_do_is_refused_before_it_starts(aws: Cloud) -> None:
    for more, expected in (
        ({"record_preprocessor_script": "/opt/ml/processing/x.py"}, "does not run user scripts"),
        ({"dataset_format": json.dumps({"parquet": {}})}, "neither Parquet"),
    ):
        request = analysis("good", "x")
        request["Environment"] |= more
        with pytest.raises(ClientError, match=expected):
            aws.sm.create_processing_job(ProcessingJobName="refused", **request)
