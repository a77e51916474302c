"""Create, describe, list, stop and delete jobs, whether pipeline steps or clients start them."""

import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.emulator.containers.isolation import remove_job_files
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.request_scope import (
    ApiError,
    make_arn,
    make_page,
    passes_list_filters,
    sort_items,
)
from trainyard.emulator.request_shapes import check_request_shape, select_members
from trainyard.emulator.sagemaker.jobs.job import KINDS, Job, JobServices
from trainyard.language.definition_document import JOB_ENDED

CLOSE_GRACE = 1.0  # seconds from SIGTERM to SIGKILL when the emulator itself stops
LOST = "InternalServerError: the emulator ended while this job was running"


class Jobs:
    """The jobs of a state directory. Its methods are thread-safe and raise ApiError as AWS does.

    ``kind`` is a key of ``KINDS``. When a job has ended, memory keeps only the members that a
    listing shows.
    """

    def __init__(self, services: JobServices) -> None:
        self._job_services = services
        self._live: dict[str, Job] = {}
        self._ended_records: dict[str, dict[str, dict]] = {kind: {} for kind in KINDS}
        """Summaries of ended jobs: {kind: {job name: summary}}."""
        self._lock = threading.Lock()
        self._is_closed = False
        services.jobs.mkdir(parents=True, exist_ok=True)
        self._load_stored_jobs()

    def exists(self, name: str) -> bool:
        """Return whether there is a job with that name, of any kind, running or ended."""
        return self._build_path(name).exists()

    def create(
        self, kind: str, request: dict, extra_members: Mapping[str, Any] | None = None
    ) -> Job:
        """Start a job. ``extra_members`` are added to the job's description.

        Raises ``ValidationException``, ``ResourceInUse``.
        """
        check_request_shape(f"Create{kind}Job", request)
        name = request[f"{kind}JobName"]
        # Of two requests with one name only one starts a job.
        with self._lock:
            if self._is_closed:
                raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
            if self._build_path(name).exists():
                arn = make_arn("sagemaker", f"{kind.lower()}-job/{name}")
                message = (
                    f"{kind} job names must be unique within an AWS account and region, and a "
                    f"{kind.lower()} job with this name already exists ({arn})"
                )
                raise ApiError("ResourceInUse", message)
            job = KINDS[kind](self._job_services, request)
            self._job_services.aws.authority.check_role_trust(job.role, job.arn)
            job.record |= extra_members or {}
            # A job that ends immediately waits for the lock in ``_forget`` until it is in the
            # table.
            job.start(self._drop_ended_job)
            self._live[name] = job
        return job

    def describe(self, kind: str, name: str) -> dict:
        """Return the response of Describe. Raises ``ValidationException`` if the job does not
        exist.
        """
        job = self._live.get(name)
        if job and kind == job.KIND:
            return select_members(f"Describe{kind}Job", job.describe())
        path = self._build_path(name)
        if path.exists() and (document := read_json(path))["kind"] == kind:
            return select_members(f"Describe{kind}Job", document["describe"])
        of_training = kind == "Training"
        other = f"Could not find requested job with name: {name}"
        message = "Requested resource not found." if of_training else other
        raise ApiError("ValidationException", message)

    def list_outputs(self, name: str) -> list[str]:
        """Return the URIs that an ended job uploaded to."""
        path = self._build_path(name)
        return read_json(path)["outputs"] if path.exists() else []

    def list_jobs(self, kind: str, request: dict) -> dict:
        with self._lock:
            live = [job for job in self._live.values() if kind == job.KIND]
            ended_jobs = list(self._ended_records[kind].values())
        summaries = [*ended_jobs, *(_summarize_job(kind, job.describe()) for job in live)]
        keys = {"CreationTime": "CreationTime", "Status": f"{kind}JobStatus"}
        summaries = sort_items(
            [job for job in summaries if _matches_request(kind, job, request)],
            request,
            keys | {"Name": f"{kind}JobName"},
            "CreationTime",
            "Ascending",
        )
        return make_page(f"{kind}JobSummaries", summaries, request, 10)

    def stop(self, kind: str, name: str) -> dict:
        """Stop a running job. Raises ``ValidationException`` if it has ended."""
        status = self.describe(kind, name)[f"{kind}JobStatus"]
        if status in JOB_ENDED:
            message = f"The request was rejected because the {kind.lower()} job is in status"
            raise ApiError("ValidationException", f"{message} {status}.")
        if job := self._live.get(name):
            job.stop()
        return {}

    def delete(self, kind: str, name: str) -> str:
        """Delete the record of a job that has ended and return its ARN. Its results stay, and its
        name can be used again.

        Raises ``ResourceNotFound``, ``ResourceInUse``.
        """
        try:
            record = self.describe(kind, name)
        except ApiError as missing:
            raise ApiError("ResourceNotFound", missing.message) from None
        status = record[f"{kind}JobStatus"]
        # The record may already say that the job has ended while its thread still cleans up.
        if status in JOB_ENDED and (job := self._live.get(name)):
            job.wait()
        with self._lock:
            # None: the job is running, or its end could not be saved because the disk is full.
            if self._ended_records[kind].pop(name, None) is None:
                message = (
                    f"{kind} job {name} is in status {status}: stop it, and wait until it has ended"
                )
                raise ApiError("ResourceInUse", message)
            shutil.rmtree(self._build_path(name).parent)
        return record[f"{kind}JobArn"]

    def close(self) -> None:
        """Stop every job. Return when none of their processes is left."""
        with self._lock:
            self._is_closed = True
            jobs = list(self._live.values())
        # Signal all before waiting for the first, so that the grace periods overlap.
        for job in jobs:
            job.stop(CLOSE_GRACE)
        for job in jobs:
            job.wait()

    def _build_path(self, name: str) -> Path:
        return self._job_services.jobs / name / "job.json"

    def _drop_ended_job(self, job: Job) -> None:
        """Remove an ended job from memory and keep its summary.

        A job whose last record could not be saved, because the disk is full, stays in memory: the
        record on disk is older.
        """
        with self._lock:
            if job.save_or_retry.pending:
                return
            del self._live[job.name]
            self._ended_records[job.KIND][job.name] = _summarize_job(job.KIND, job.describe())

    def _load_stored_jobs(self) -> None:
        """Load the stored jobs' summaries, and mark jobs as failed that were still running."""
        for path in self._job_services.jobs.glob("*/job.json"):
            document = read_json(path)
            kind, record = document["kind"], document["describe"]
            if record[f"{kind}JobStatus"] not in JOB_ENDED:
                record |= {f"{kind}JobStatus": "Failed", "FailureReason": LOST}
                record |= {f"{kind}EndTime": time.time(), "LastModifiedTime": time.time()}
                if "SecondaryStatus" in record:
                    record["SecondaryStatus"] = "Failed"
                write_json(path, document)
                remove_job_files(path.parent)
            self._ended_records[kind][path.parent.name] = _summarize_job(kind, record)


def _matches_request(kind: str, job: dict, request: dict) -> bool:
    times = job["CreationTime"], job["LastModifiedTime"]
    same_status = request.get("StatusEquals") in (None, job[f"{kind}JobStatus"])
    return same_status and passes_list_filters(request, job[f"{kind}JobName"], *times)


def _summarize_job(kind: str, job: dict) -> dict:
    names = ("JobName", "JobArn", "JobStatus", "EndTime")
    members = [f"{kind}{name}" for name in names]
    members += ["CreationTime", "LastModifiedTime", "SecondaryStatus"]
    members += ["FailureReason", "ExitMessage"] if kind != "Training" else []
    return {name: job[name] for name in members if name in job}
