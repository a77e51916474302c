"""QualityCheck step: compute a baseline of data or a model, and check it against an earlier one.

The life cycle of baselines is the developer guide's ("Baseline calculation, drift detection and
lifecycle with ClarifyCheck and QualityCheck steps"): a check is made against the supplied baseline,
or else against the baseline of the group's newest approved package.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.sagemaker.jobs.job import KINDS, Job
from trainyard.emulator.sagemaker.jobs.processing_job import ProcessingJob
from trainyard.emulator.sagemaker.jobs.training_job import TrainingJob
from trainyard.emulator.sagemaker.jobs.transfers import ClientFault, split_uri
from trainyard.emulator.sagemaker.jobs.transform_job import TransformJob
from trainyard.emulator.sagemaker.pipelines.steps.runner import (
    Attempt,
    Runner,
    StepFailed,
    StepStopped,
    make_failure,
    runs,
)

PARTS = ("Statistics", "Constraints")
_DRIFT_CHECKS = {"DATA_QUALITY": "ModelDataQuality", "MODEL_QUALITY": "ModelQuality"}
_LINE_LIMIT = 3  # maximum number of violations in a FailureReason


@runs("QualityCheck")
class QualityCheckRunner(Runner):
    """Compute a baseline in a processing job. The job also compares it with the earlier one, unless
    SkipCheck is true.
    """

    @staticmethod
    def iter_checks(step_type: str, arguments: dict, python: Path) -> Iterable[Check]:
        return ProcessingJob.iter_checks(arguments, python)

    def run(self, attempt: Attempt) -> None:
        fields = attempt.fields
        skips_check, registers_baseline = (
            _is_true(fields, "SkipCheck"),
            _is_true(fields, "RegisterNewBaseline"),
        )
        before = self._find_baseline(fields)
        if not skips_check and "Constraints" not in before:
            raise StepFailed(f"ClientError: {_explain_no_baseline(fields)}")
        output = _find_output_uri(attempt.arguments)
        new = {part: f"{output}/{part.lower()}.json" for part in PARTS}
        used = new if registers_baseline else before
        metadata: dict[str, Any] = {
            "CheckType": fields["CheckType"],
            **{f"CalculatedBaseline{part}": uri for part, uri in new.items()},
            **{f"BaselineUsedForDriftCheck{part}": uri for part, uri in used.items()},
            "SkipCheck": skips_check,
            "RegisterNewBaseline": registers_baseline,
        }
        if group := fields.get("ModelPackageGroupName"):
            metadata["ModelPackageGroupName"] = group
        request = attempt.arguments if skips_check else _add_baseline(attempt.arguments, before)
        self._run_job(attempt, request, metadata)
        if not skips_check:
            self._record_violations(attempt, metadata, f"{output}/constraint_violations.json")

    def describe(self, metadata: dict) -> dict:
        return {name: value for name, value in metadata.items() if name in self._type.properties}

    def list_outputs(self, metadata: dict) -> list[str]:
        return [metadata[f"CalculatedBaseline{part}"] for part in PARTS]

    def stop(self, metadata: dict) -> None:
        try:
            self._services.jobs.stop(ProcessingJob.KIND, metadata["CheckJobArn"].rpartition("/")[2])
        except ApiError as error:  # it has already ended
            if error.code != "ValidationException":
                raise

    def _run_job(self, attempt: Attempt, request: dict, metadata: dict[str, Any]) -> None:
        """Run the processing job to its end, and store its ARN. Raises StepFailed, StepStopped."""
        try:
            job = self._services.jobs.create(
                ProcessingJob.KIND, request | {"ProcessingJobName": attempt.name}
            )
        except ApiError as error:
            raise make_failure("CreateProcessingJob", error) from None
        metadata["CheckJobArn"] = job.arn
        attempt.note(dict(metadata))
        if tags := request.get("Tags"):
            self._services.forward("AddTags", {"ResourceArn": job.arn, "Tags": tags})
        wait_for_job(job)

    def _record_violations(self, attempt: Attempt, metadata: dict[str, Any], report: str) -> None:
        """Record the violations in the report. Raises StepFailed if there are any, unless
        FailOnViolation is false.
        """
        violations = json.loads(self._services.objects.read_bytes(*split_uri(report)))["violations"]
        if not violations:
            return
        metadata["ViolationReport"] = report
        attempt.note(dict(metadata))
        if _is_true(attempt.fields, "FailOnViolation", default=True):
            lines = "; ".join(
                f"{v.get('feature_name') or v.get('metric_name')}: "
                f"{v['constraint_check_type']}: {v['description']}"
                for v in violations[:_LINE_LIMIT]
            )
            raise StepFailed(
                # AWS's words up to the report's URI, because its SDK's tests expect them; then the
                # violations.
                f"ClientError: Quality check failed. See violation report {report}: "
                f"{len(violations)} violations: {lines}"
            )

    def _find_baseline(self, fields: dict[str, Any]) -> dict[str, str]:
        """Return the earlier baseline to check against: a mapping of Statistics and Constraints to
        their S3 URIs, without those that are missing.
        """
        baseline = {part: fields.get(f"SuppliedBaseline{part}") for part in PARTS}
        if any(baseline.values()) or not fields.get("ModelPackageGroupName"):
            return {part: uri for part, uri in baseline.items() if uri}
        package = self._find_package(fields["ModelPackageGroupName"])
        drift = package.get("DriftCheckBaselines", {}).get(_DRIFT_CHECKS[fields["CheckType"]])
        return {part: drift[part]["S3Uri"] for part in PARTS if part in (drift or {})}

    def _find_package(self, group: str) -> dict[str, Any]:
        """Return the description of the newest approved package of the group. Return {} if there is
        none.
        """
        query = {"ModelPackageGroupName": group, "ModelApprovalStatus": "Approved"}
        newest = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": 1}
        try:
            answer = self._services.forward("ListModelPackages", query | newest)
        except ApiError as error:
            if error.status >= 500:
                raise
            return {}  # the group is missing until the first package is registered
        for package in answer["ModelPackageSummaryList"]:
            name = {"ModelPackageName": package["ModelPackageArn"]}
            return self._services.forward("DescribeModelPackage", name)
        return {}


def _is_true(fields: dict[str, Any], name: str, default: bool = False) -> bool:
    """Return a field as a Boolean; it may be the text ``true``. ``default`` replaces null."""
    value = fields.get(name)
    if value is None:  # the SDK writes null if the value is not set
        return default
    return value.lower() == "true" if isinstance(value, str) else bool(value)


def _explain_no_baseline(fields: dict[str, Any]) -> str:
    """Return why the step has no baseline to check against, and what to do."""
    group, kind = fields.get("ModelPackageGroupName"), _DRIFT_CHECKS[fields["CheckType"]]
    of_group = (
        f", and no approved package of {group} has DriftCheckBaselines.{kind}.Constraints"
        if group
        else " and no ModelPackageGroupName"
    )
    return (
        "the step must check, but has no baseline: it has no SuppliedBaselineConstraints"
        f"{of_group}. Set SkipCheck for the first run"
    )


def _find_output_uri(arguments: dict[str, Any]) -> str:
    """Return the S3 URI of the analyser's output. Raises StepFailed if the request has none."""
    local = arguments.get("Environment", {}).get("output_path", "")
    for entry in arguments.get("ProcessingOutputConfig", {}).get("Outputs", []):
        if (s3_output := entry.get("S3Output")) and s3_output.get("LocalPath") == local:
            try:
                split_uri(s3_output["S3Uri"])
            except ClientFault as fault:
                raise StepFailed(f"ClientError: {fault}") from None
            return s3_output["S3Uri"].rstrip("/")
    raise StepFailed(
        f"ClientError: no output has the LocalPath of Environment.output_path, {local!r}"
    )


def _add_baseline(arguments: dict[str, Any], before: dict[str, str]) -> dict[str, Any]:
    """Return the request with the earlier baseline as inputs, and with environment variables that
    name the inputs' paths.
    """
    inputs, environment = list(arguments.get("ProcessingInputs", [])), {}
    for part, uri in before.items():
        name = f"baseline_{part.lower()}"
        local = f"/opt/ml/processing/{name}"
        source = {"S3Uri": uri, "LocalPath": local, "S3DataType": "S3Prefix", "S3InputMode": "File"}
        inputs.append({"InputName": name, "S3Input": source})
        environment[name] = local
    variables = arguments.get("Environment", {})
    return {**arguments, "ProcessingInputs": inputs, "Environment": variables | environment}


# Training, Processing and Transform steps: start a job and wait for it. The job's kind is the
# step's type.


@runs(TrainingJob.KIND, ProcessingJob.KIND, TransformJob.KIND)
class JobRunner(Runner):
    """Create the job that the Arguments describe, and wait for it."""

    @staticmethod
    def iter_checks(step_type: str, arguments: dict, python: Path) -> Iterable[Check]:
        return KINDS[step_type].iter_checks(arguments, python)

    def run(self, attempt: Attempt) -> None:
        kind = self._type.name
        try:
            request = attempt.arguments | {f"{kind}JobName": attempt.name}
            job = self._services.jobs.create(kind, request)
        except ApiError as error:
            raise make_failure(f"Create{kind}Job", error) from None
        attempt.note({"Arn": job.arn})
        if tags := request.get("Tags"):
            self._services.forward("AddTags", {"ResourceArn": job.arn, "Tags": tags})
        wait_for_job(job)

    def describe(self, metadata: dict) -> dict:
        kind, name = self._type.name, _parse_job_name(metadata)
        return self._services.jobs.describe(kind, name) | {f"{kind}JobName": name}

    def list_outputs(self, metadata: dict) -> list[str]:
        return self._services.jobs.list_outputs(_parse_job_name(metadata))

    def stop(self, metadata: dict) -> None:
        try:
            self._services.jobs.stop(self._type.name, _parse_job_name(metadata))
        except ApiError as error:  # it has already ended
            if error.code != "ValidationException":
                raise


def wait_for_job(job: Job) -> None:
    """Wait for the job's end. Raises StepFailed if it failed and StepStopped if it was stopped."""
    job.wait()
    if job.status == "Failed":
        reason = job.record["FailureReason"]
        # "ClientError: AlgorithmError" is what AWS's own integration tests of the SDK expect
        # (tests/integ/sagemaker/workflow/test_step_decorator.py).
        by_script = reason.startswith("AlgorithmError")
        raise StepFailed(f"ClientError: {reason}"[:1024] if by_script else reason)
    if job.status == "Stopped" and "FailureReason" in job.record:
        raise StepFailed(job.record["FailureReason"])  # MaxRuntimeInSeconds
    if job.status == "Stopped":
        raise StepStopped


def _parse_job_name(metadata: dict) -> str:
    return metadata["Arn"].rpartition("/")[2]
