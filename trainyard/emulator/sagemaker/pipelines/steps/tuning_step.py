"""Tuning step: start a tuning job and wait for it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_shapes import Check, check_request_shape
from trainyard.emulator.sagemaker.jobs.training_job import TrainingJob
from trainyard.emulator.sagemaker.pipelines.steps.runner import (
    Attempt,
    Runner,
    StepFailed,
    StepStopped,
    make_failure,
    runs,
)
from trainyard.emulator.sagemaker.tuning.search_strategies import explain_missing_strategy
from trainyard.emulator.sagemaker.tuning.tuning_api import rank_summaries
from trainyard.emulator.sagemaker.tuning.tuning_job import TuningJob
from trainyard.emulator.sagemaker.tuning.tuning_request import list_definitions
from trainyard.language.expressions import ExpressionError

OPERATION = "CreateHyperParameterTuningJob"


@runs("Tuning")
class TuningRunner(Runner):
    """Create the tuning job that the Arguments describe, and wait for it. As on AWS, a retried step
    creates a new one.
    """

    @staticmethod
    def check(arguments: dict[str, Any]) -> None:
        config = arguments.get("HyperParameterTuningJobConfig")
        strategy = config.get("Strategy") if isinstance(config, dict) else None
        if isinstance(strategy, str) and (reason := explain_missing_strategy(strategy)):
            raise ExpressionError(reason)

    @staticmethod
    def iter_checks(step_type: str, arguments: dict[str, Any], python: Path) -> Iterable[Check]:
        for definition in list_definitions(arguments):
            static_member = {"HyperParameters": definition.get("StaticHyperParameters", {})}
            yield from TrainingJob.iter_checks(definition | static_member, python)

    def run(self, attempt: Attempt) -> None:
        name = _make_tuning_job_name(attempt)
        request = attempt.arguments | {"HyperParameterTuningJobName": name}
        try:
            check_request_shape(OPERATION, request)
            job = self._services.tunings.create(request)
        except ApiError as error:
            raise make_failure(OPERATION, error) from None
        attempt.note({"Arn": job.answer["HyperParameterTuningJobArn"]})
        job.wait()
        if job.status == "Stopped":
            raise StepStopped
        if job.status == "Failed":
            raise StepFailed(job.answer["FailureReason"])

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        job = self._find_job(metadata)
        return job.describe() | {"TrainingJobSummaries": rank_summaries(job)}

    def list_outputs(self, metadata: dict[str, Any]) -> list[str]:
        return self._services.tunings.list_outputs(self._find_job(metadata).name)

    def stop(self, metadata: dict[str, Any]) -> None:
        self._find_job(metadata).stop()

    def _find_job(self, metadata: dict[str, Any]) -> TuningJob:
        return self._services.tunings.find_job(metadata["Arn"].rpartition("/")[2])


def _make_tuning_job_name(attempt: Attempt) -> str:
    """Return the tuning job's name, ``<execution>-<step, 7>-<10 random>``, of at most 32
    characters.

    It is made from ``attempt.name``, ``pipelines-<execution>-<step>-<10 random>``.
    """
    _, execution, rest = attempt.name.split("-", 2)
    step, _, random_part = rest.rpartition("-")
    return f"{execution}-{step[:7].strip('-')}-{random_part}"
