"""A step that starts a job and waits for it; the job's kind is the step's type."""

from collections.abc import Iterable
from pathlib import Path

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.job import KINDS, Job
from trainyard.emulator.jobs.processing_job import ProcessingJob
from trainyard.emulator.jobs.request_checks import Check
from trainyard.emulator.jobs.training_job import TrainingJob
from trainyard.emulator.jobs.transform_job import TransformJob
from trainyard.emulator.pipelines.steps.runner import (
    Attempt,
    Runner,
    StepFailed,
    StepStopped,
    make_failure,
    runs,
)


@runs(TrainingJob.KIND, ProcessingJob.KIND, TransformJob.KIND)
class JobRunner(Runner):
    """Creates the job that the Arguments ask for."""

    @staticmethod
    def checks(step_type: str, arguments: dict, python: Path) -> Iterable[Check]:
        return KINDS[step_type].checks(arguments, python)

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
        see_through(job)

    def describe(self, metadata: dict) -> dict:
        kind, name = self._type.name, _name(metadata)
        return self._services.jobs.describe(kind, name) | {f"{kind}JobName": name}

    def outputs(self, metadata: dict) -> list[str]:
        return self._services.jobs.outputs(_name(metadata))

    def stop(self, metadata: dict) -> None:
        try:
            self._services.jobs.stop(self._type.name, _name(metadata))
        except ApiError as error:  # it has ended meanwhile
            if error.code != "ValidationException":
                raise


def see_through(job: Job) -> None:
    """Wait for the job's end. Raises StepFailed or StepStopped if it failed or was stopped.

    A failure of the script is reported as "ClientError: AlgorithmError", as AWS's own integration
    tests of the SDK expect (tests/integ/sagemaker/workflow/test_step_decorator.py).
    """
    job.wait()
    if job.status == "Failed":
        reason = job.record["FailureReason"]
        by_script = reason.startswith("AlgorithmError")
        raise StepFailed(f"ClientError: {reason}"[:1024] if by_script else reason)
    if job.status == "Stopped" and "FailureReason" in job.record:
        raise StepFailed(job.record["FailureReason"])  # MaxRuntimeInSeconds
    if job.status == "Stopped":
        raise StepStopped


def _name(metadata: dict) -> str:
    return metadata["Arn"].rpartition("/")[2]
