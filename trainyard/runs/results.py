"""The numbers that an execution produced: metrics of its training jobs, numbers in its outputs."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from trainyard.aws_clients import error_code, service_errors
from trainyard.language.steps import named
from trainyard.runs.evaluation_numbers import (
    in_json,
    in_report,
    is_overwritten,
    of_package,
    place,
    read_object,
)
from trainyard.runs.execution import Execution, Step, search
from trainyard.runs.metric_lines import definitions, given_up, metrics_in
from trainyard.runs.metric_series import Sample, final, of_cloudwatch

Row = dict[str, Any]


class Made:
    """The results of one execution; every call asks the service anew."""

    def __init__(self, arn: str, region: str | None, make: Callable[..., Any]) -> None:
        """``make`` returns a client of a service, shared by all executions."""
        self.execution = Execution(arn, region, make)
        self._sagemaker, self._s3 = make("sagemaker", region), make("s3", region)
        self._cloudwatch = make("cloudwatch", region)

    def job(self, step: Step) -> dict[str, Any]:
        """Return the description of what the step is charged for, which must be something: its
        job's, or its tuning job's with all training jobs.

        Raises:
            ServiceError: the job no longer exists, or AWS refuses.
        """
        if step.tuning_job:
            return search(self._sagemaker, step.tuning_job)
        assert step.job is not None
        kind, name = step.job
        with service_errors(f"reading {kind} {name}"):
            ask = getattr(self._sagemaker, f"describe_{xform_name(kind)}")
            answer: dict[str, Any] = ask(**{f"{kind}Name": name})
            return answer

    def metrics(self, *, series: bool) -> Iterator[Row]:
        """Iterate over the latest value of each metric of each training job, or over all values.

        Raises:
            ServiceError: AWS refuses.
        """
        for step in self.execution.steps():
            if step.job and step.job[0] == "TrainingJob":
                job = self.job(step)
                source, samples = self._series(step, job) if series else _latest(job)
                for name, sample in samples:
                    yield {
                        "execution": self.execution.arn,
                        "step": step.name,
                        "metric": name,
                        "training_step": sample.step,
                        "time": datetime.fromtimestamp(sample.at / 1000, UTC)
                        if sample.at
                        else None,
                        "value": sample.value,
                        "source": source,
                    }

    def _series(self, step: Step, job: Mapping[str, Any]) -> tuple[str, list[tuple[str, Sample]]]:
        """Return the log's values; else CloudWatch's; else the latest."""
        if logged := list(self._logged(step, job)):
            return "log", logged
        assert step.job is not None
        names = dict.fromkeys([*(one.name for one in definitions(job)), *final(job)])
        kept = of_cloudwatch(self._cloudwatch, step.job[1], [*names][:500], job)
        if kept:
            return "CloudWatch", [(name, one) for name, all in kept.items() for one in all]
        return _latest(job)

    def _logged(self, step: Step, job: Mapping[str, Any]) -> Iterator[tuple[str, Sample]]:
        known, counter = definitions(job), ""
        for event in self.execution.all_events(step) if known else ():
            if (one := metrics_in(known, event["message"])) is not None:
                counter = counter or one.counter
                number = one.step if one.counter == counter else None
                for name, value in one.values.items():
                    yield name, Sample(event["timestamp"], number, value)
        for warning in given_up(known):
            warnings.warn(f"{self.execution.arn}, step {step.name}: {warning}", stacklevel=2)

    def scores(self) -> Iterator[Row]:
        """Iterate over the numbers in property files, and those that come with model packages.

        Raises:
            ServiceError: AWS refuses.
        """
        documents = self.execution.definition().get("Steps")
        for step in self.execution.steps():
            entry = named(documents, step.name)
            files = (entry.document.get("PropertyFiles") if entry else None) or ()
            if files and step.job and step.job[0] == "ProcessingJob":
                job = self.job(step)
                for file in files:
                    yield from self._rows(step, file.get("PropertyFileName"), self._file(job, file))
            if arn := step.metadata.get("RegisterModel", {}).get("Arn"):
                yield from self._rows(step, arn, self._package(arn).items())

    def _rows(self, step: Step, source: str, numbers: Any) -> Iterator[Row]:
        for name, value in numbers:
            yield {
                "execution": self.execution.arn,
                "step": step.name,
                "source": source,
                "score": name,
                "value": value,
            }

    def _file(self, job: Mapping[str, Any], file: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        if (uri := place(job, file)) is None:
            return
        with service_errors(f"reading property file {uri}"):
            try:
                written, content = read_object(self._s3, uri)
            except ClientError as error:
                if error_code(error) in ("NoSuchKey", "404"):  # a failed step has not written it
                    return
                raise
        if is_overwritten(job, written):
            warnings.warn(
                f"{uri} is left out: another job has written it since {self.execution.arn}",
                stacklevel=2,
            )
            return
        yield from in_json(content)

    def _package(self, arn: str) -> dict[str, float]:
        with service_errors(f"reading model package {arn}"):
            package = self._sagemaker.describe_model_package(ModelPackageName=arn)
        registered = package.get("CreationTime")
        return of_package(package, lambda uri: in_report(self._s3, uri, registered))


def _latest(job: Mapping[str, Any]) -> tuple[str, list[tuple[str, Sample]]]:
    return "last values", [*final(job).items()]


def _time(sample: Sample) -> datetime | None:
    return datetime.fromtimestamp(sample.at / 1000, UTC) if sample.at else None
