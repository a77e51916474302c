"""QualityCheck steps over the life of baselines: skipped, supplied, registered, violated."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, processing, s3_input
from tests.trainyard.emulator.sagemaker.builders import run

pytestmark = pytest.mark.long

IMAGE = "156813124566.dkr.ecr.us-east-1.amazonaws.com/sagemaker-model-monitor-analyzer"
GOOD = "a,b\n" + "".join(f"{i},{i / 7}\n" for i in range(50))
BAD = GOOD.replace("\n7,", "\nx,")


@pytest.fixture(scope="module", autouse=True)
def data(aws: Cloud) -> None:
    aws.put("good/data.csv", GOOD)
    aws.put("bad/data.csv", BAD)


def analysis(data: str, name: str) -> dict[str, Any]:
    """Return CreateProcessingJob's request as the SDK's QualityCheckStep compiles it."""
    request = processing("", outputs={"monitoring_output": f"s3://bkt/{name}"})
    [output] = request["ProcessingOutputConfig"]["Outputs"]
    output["S3Output"]["LocalPath"] = "/opt/ml/processing/output"
    return request | {
        "AppSpecification": {"ImageUri": IMAGE},
        "ProcessingInputs": [s3_input("baseline_dataset_input", f"s3://bkt/{data}")],
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
    about = {"Name": name, "Type": "QualityCheck", "CheckType": "DATA_QUALITY"}
    return {**about, **given, **fields, "Arguments": analysis(data, name)}


def run_quality_check(
    aws: Cloud, name: str, data: str, status: str, **fields: Any
) -> dict[str, Any]:
    """Run the step, which ends with that status; return its entry in the execution."""
    found = run(aws, name, [step(name, data, **fields)])[1][name]
    assert found["StepStatus"] == status, found
    return found


def make_supplied_baseline(name: str) -> dict[str, str]:
    """Return a supplied baseline: the one that the step of that name calculated."""
    parts = ("Statistics", "Constraints")
    return {f"SuppliedBaseline{p}": f"s3://bkt/{name}/{p.lower()}.json" for p in parts}


@pytest.mark.slow
def test_a_first_baseline_then_checks_against_it(aws: Cloud) -> None:
    first = {"SkipCheck": True, "RegisterNewBaseline": True}
    made = run_quality_check(aws, "first", "good", "Succeeded", **first)["Metadata"]["QualityCheck"]
    assert made["CalculatedBaselineConstraints"] == "s3://bkt/first/constraints.json"
    assert made["BaselineUsedForDriftCheckStatistics"] == made["CalculatedBaselineStatistics"]
    assert json.loads(aws.get("first/statistics.json"))["dataset"]["item_count"] == 50

    group = {"ModelPackageGroupName": "models"}
    none = run_quality_check(aws, "none", "good", "Failed", **group)
    assert "no approved package of models has DriftCheckBaselines" in none["FailureReason"]

    drift = {
        part: {"ContentType": "application/json", "S3Uri": f"s3://bkt/first/{part.lower()}.json"}
        for part in ("Statistics", "Constraints")
    }
    baselines = {"DriftCheckBaselines": {"ModelDataQuality": drift}}
    aws.sm.create_model_package_group(**group)
    aws.sm.create_model_package(**group, ModelApprovalStatus="Approved", **baselines)
    broken = run_quality_check(aws, "broken", "bad", "Failed", **group)
    assert "ClientError: Quality check failed. See violation report" in broken["FailureReason"]
    assert "a: data_type_check: Data type match requirement is not met" in broken["FailureReason"]
    made = broken["Metadata"]["QualityCheck"]
    assert made["ViolationReport"] == "s3://bkt/broken/constraint_violations.json"
    assert made["BaselineUsedForDriftCheckStatistics"] == "s3://bkt/first/statistics.json"

    run_quality_check(
        aws, "told", "bad", "Succeeded", FailOnViolation=False, **make_supplied_baseline("first")
    )
    assert json.loads(aws.get("told/constraint_violations.json"))["violations"]
    run_quality_check(aws, "kept", "good", "Succeeded", **make_supplied_baseline("first"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"record_preprocessor_script": "/opt/ml/processing/x.py"}, "does not run user scripts"),
        ({"dataset_format": json.dumps({"parquet": {}})}, "neither Parquet"),
    ],
)
def test_what_the_analyser_does_not_do_is_refused_before_it_starts(aws, more, expected) -> None:
    request = analysis("good", "x")
    request["Environment"] |= more
    with pytest.raises(ClientError, match=expected):
        aws.sm.create_processing_job(ProcessingJobName="refused", **request)
