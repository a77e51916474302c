"""Create, describe, list, stop and delete tuning jobs, and list their training jobs."""

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.request_scope import (
    ApiError,
    make_arn,
    make_page,
    make_validation_error,
    passes_list_filters,
    sort_items,
)
from trainyard.emulator.request_shapes import check_request_shape
from trainyard.emulator.sagemaker.jobs.job import JobServices
from trainyard.emulator.sagemaker.jobs.job_api import Jobs
from trainyard.emulator.sagemaker.jobs.training_job import TrainingJob, compile_metric_definition
from trainyard.emulator.sagemaker.model_registry import Tags
from trainyard.emulator.sagemaker.tuning.search_strategies import STRATEGIES, Question, build_space
from trainyard.emulator.sagemaker.tuning.tuning_job import (
    KIND,
    TuningJob,
    check_warm_start,
    list_parents,
)
from trainyard.emulator.sagemaker.tuning.tuning_request import (
    CONFIG,
    check_search,
    find_metric_definition,
    find_ranges,
    list_definitions,
)
from trainyard.emulator.sagemaker.tuning.tuning_results import (
    Result,
    build_training_request,
    count_statuses,
    rank_results,
)
from trainyard.language.definition_document import JOB_ENDED

LOST = (
    "InternalServerError: the emulator ended while this tuning job was running; finished training "
    "jobs are kept: name this tuning job as a parent in WarmStartConfig to continue from them"
)
RESOURCE = "hyper-parameter-tuning-job"
_STEM = "HyperParameterTuningJob"
_NAME_MEMBER = f"{_STEM}Name"
Operation = Callable[[dict[str, Any]], dict[str, Any]]


class Tunings:
    """The tuning jobs of a state directory. Its methods are thread-safe."""

    def __init__(self, root: Path, job_services: JobServices, jobs: Jobs, tags: Tags) -> None:
        self._root, self._job_services, self._jobs, self._tags = root, job_services, jobs, tags
        self._all: dict[str, TuningJob] = {}
        self._lock = threading.RLock()
        self._is_closed = False
        for path in sorted(root.glob("*/tuning.json")):
            self._load(path)

    def list_operations(self) -> dict[str, Operation]:
        return {
            "CreateHyperParameterTuningJob": lambda request: {
                "HyperParameterTuningJobArn": self.create(request).answer[f"{_STEM}Arn"]
            },
            "DescribeHyperParameterTuningJob": lambda request: self._find_requested_job(
                request
            ).describe(),
            "ListHyperParameterTuningJobs": self._list,
            "StopHyperParameterTuningJob": self._stop,
            "DeleteHyperParameterTuningJob": self._delete,
            "ListTrainingJobsForHyperParameterTuningJob": self._list_training_jobs,
        }

    def create(self, request: dict[str, Any]) -> TuningJob:
        """Start a tuning job.

        Raises:
            ApiError: ``ValidationException``, ``ResourceInUse`` or ``ResourceLimitExceeded``,
                before anything was started.
        """
        name = request[_NAME_MEMBER]
        self._check_request(request)
        with self._lock:
            if self._is_closed:
                raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
            if name in self._all:
                raise ApiError("ResourceInUse", f"Tuning job name must be unique, {name} exists")
            now = time.time()
            arn = make_arn("sagemaker", f"{RESOURCE}/{name}")
            answer = {f"{_STEM}Arn": arn, f"{_STEM}Status": "InProgress", "CreationTime": now}
            document = {"request": request, "answer": answer, "trials": []}
            job = self._all[name] = self._make_job(document)
            if tags := request.get("Tags"):
                self._tags.add({"ResourceArn": arn, "Tags": tags})
            job.start()
        return job

    def find_job(self, name: str) -> TuningJob:
        """Return the tuning job. Raises ``ResourceNotFound`` if it does not exist."""
        with self._lock:
            if name in self._all:
                return self._all[name]
        raise ApiError("ResourceNotFound", f"Tuning job {name!r} does not exist.")

    def list_outputs(self, name: str) -> list[str]:
        """Return the URIs to which its training jobs uploaded."""
        return [
            uri
            for r in self.find_job(name).list_results()
            for uri in self._jobs.list_outputs(r.name)
        ]

    def close(self) -> None:
        """Stop all tuning jobs. They start no further training jobs."""
        with self._lock:
            self._is_closed = True
            running = [job for job in self._all.values() if job.status not in JOB_ENDED]
        for job in running:
            job.stop()

    def join(self) -> None:
        """Wait until the tuning jobs have ended. Their training jobs must have been stopped,
        too.
        """
        for job in list(self._all.values()):
            if job.status not in JOB_ENDED:
                job.wait()

    # operations

    def _find_requested_job(self, request: Mapping[str, Any]) -> TuningJob:
        return self.find_job(request[_NAME_MEMBER])

    def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        job = self._find_requested_job(request)
        if job.status in JOB_ENDED:
            message = "The request was rejected because the tuning job is in status"
            raise make_validation_error(f"{message} {job.status}.")
        job.stop()
        return {}

    def _delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Delete only the tuning job's entry. Training jobs and their results stay (botocore's
        documentation).
        """
        job = self._find_requested_job(request)
        if job.status not in JOB_ENDED:
            raise make_validation_error(f"Tuning job {job.name} is {job.status}: stop it first.")
        with self._lock:
            shutil.rmtree(self._root / job.name)
            del self._all[job.name]
        self._tags.delete_all(job.answer[f"{_STEM}Arn"])
        return {}

    def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            answers = [job.answer | {_NAME_MEMBER: job.name} for job in self._all.values()]
        summaries = sort_items(
            [answer for answer in answers if _matches_request(answer, request)],
            request,
            {"Name": _NAME_MEMBER, "Status": f"{_STEM}Status", "CreationTime": "CreationTime"},
            "Name",
            "Ascending",
        )
        show = lambda answer: _summarize_job(self.find_job(answer[_NAME_MEMBER]))  # noqa: E731
        return make_page("HyperParameterTuningJobSummaries", summaries, request, 10, show)

    def _list_training_jobs(self, request: dict[str, Any]) -> dict[str, Any]:
        results = self._find_requested_job(request).list_results()
        status = request.get("StatusEquals")
        rows = [_build_row(result) for result in results if status in (None, result.status)]
        if request.get("SortBy") == "FinalObjectiveMetricValue":
            rows = [row for row in rows if row["FinalObjectiveMetricValue"] is not None]
        keys = ("Name", "CreationTime", "Status", "FinalObjectiveMetricValue")
        rows = sort_items(rows, request, {key: key for key in keys}, "Name", "Ascending")
        return make_page(
            "TrainingJobSummaries", rows, request, 10, lambda row: row["of"].summarize()
        )

    # internals

    def _check_request(self, request: dict[str, Any]) -> None:
        """Raise ApiError if the search, its warm start or its training jobs cannot be run."""
        check_search(request)
        check_warm_start(request, {n: self.find_job(n).describe() for n in list_parents(request)})
        for definition in list_definitions(request):
            compile_metric_definition(find_metric_definition(request, definition))
            example = _build_example_request(request, definition)
            check_request_shape(f"Create{KIND}Job", example)
            for refuse in TrainingJob.iter_checks(example, self._job_services.python):
                refuse()

    def _make_job(self, document: dict[str, Any]) -> TuningJob:
        """Return the tuning job of ``document``; it is not started."""
        request = document["request"]
        directory = self._root / request[_NAME_MEMBER]
        parents = partial(self._list_parent_results, request)
        return TuningJob(directory, document, self._jobs, self._job_services.logs, parents)

    def _list_parent_results(self, request: Mapping[str, Any]) -> list[Result]:
        """Return the results of those parents whose records still exist."""
        with self._lock:
            parents = [self._all[name] for name in list_parents(request) if name in self._all]
        return [result for parent in parents for result in parent.list_results()]

    def _load(self, path: Path) -> None:
        """Load a tuning job. Mark it as failed if it was running when an earlier emulator ended."""
        document = read_json(path)
        answer = document["answer"]
        if answer[f"{_STEM}Status"] not in JOB_ENDED:
            now = time.time()
            answer |= {f"{_STEM}Status": "Failed", "FailureReason": LOST}
            answer |= {"HyperParameterTuningEndTime": now, "LastModifiedTime": now}
            # A training job's name is written to disk before the job is created, so after a kill a
            # name may have no job.
            document["trials"] = [t for t in document["trials"] if self._jobs.exists(t["name"])]
            write_json(path, document)
        job = self._make_job(document)
        self._all[job.name] = job


def rank_summaries(job: TuningJob) -> list[dict[str, Any]]:
    """Return TrainingJobSummaries as a tuning step's properties have them, the best first."""
    return [result.summarize() for result in rank_results(job.list_results())]


def _summarize_job(job: TuningJob) -> dict[str, Any]:
    keys = (_NAME_MEMBER, f"{_STEM}Arn", f"{_STEM}Status", "CreationTime",
              "HyperParameterTuningEndTime", "LastModifiedTime")  # fmt: skip
    answer = job.answer | {_NAME_MEMBER: job.name}
    config = job.request[CONFIG]
    return {key: answer[key] for key in keys if key in answer} | {
        "Strategy": config["Strategy"],
        "ResourceLimits": config["ResourceLimits"],
        **count_statuses(job.list_results()),
    }


def _build_example_request(request: dict[str, Any], definition: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a training job as this tuning job would start it, to check it in
    advance.
    """
    space = build_space(find_ranges(request, definition))
    first = Question(space, [], minimize=True, seed="", number=0)
    strategy = request[CONFIG]["Strategy"]
    values = STRATEGIES["Grid" if strategy == "Grid" else "Random"](first)
    return build_training_request(
        request, definition, f"{request[_NAME_MEMBER]}-001-00000000", values
    )


def _build_row(result: Result) -> dict[str, Any]:
    """Return a row with the result and the values by which the training jobs can be sorted."""
    return {
        "of": result,
        "Name": result.name,
        "Status": result.status,
        "CreationTime": result.record["CreationTime"],
        "FinalObjectiveMetricValue": result.objective,
    }


def _matches_request(answer: Mapping[str, Any], request: dict[str, Any]) -> bool:
    times = answer["CreationTime"], answer["LastModifiedTime"]
    same_status = request.get("StatusEquals") in (None, answer[f"{_STEM}Status"])
    return same_status and passes_list_filters(request, answer[_NAME_MEMBER], *times)
