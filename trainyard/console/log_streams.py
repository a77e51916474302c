"""The log streams of a step's job, one per instance and attempt; of a tuning, its trainings'
streams.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.runs.execution import LOG_GROUPS, Step

MOST = 1_000
"""Most streams of a step that are offered."""

_OWN_NAME = re.compile(r"(pipelines-[^/]*-)[A-Za-z0-9]{8,}$")
_HOST = re.compile(r"(.*?\d+)(?:-(\d{9,}))?$")


@dataclass(frozen=True, slots=True)
class Stream:
    """The log of one instance in one attempt."""

    group: str
    name: str
    """Name of the stream, ``job/algo-1-1700000000``."""
    created: int
    """Time of creation, in milliseconds since the epoch."""

    @property
    def job(self) -> str:
        """Name of the job."""
        return self.name.partition("/")[0]

    @property
    def own(self) -> str:
        """Part of the name after the job's: ``algo-1-1700000000``."""
        return self.name.partition("/")[2]

    @property
    def host(self) -> str:
        """Host, ``algo-1``."""
        match = _HOST.match(self.own)
        return match[1] if match else self.own


def streams(account: Account, step: Step) -> list[Stream]:
    """Return all streams of the step, the newest attempt first, then by the host's number.

    Raises:
        ServiceError: CloudWatch refuses.
    """
    seconds = 2.0 if step.ended is None else 60.0
    if step.job is None:
        tuning = tuning_of(step)
        key = ("streams of a tuning", tuning)
        return (
            account.lately(key, lambda: _of_trainings(account, tuning), seconds) if tuning else []
        )
    kind, job = step.job
    return account.lately(
        ("streams", job), lambda: _streams(account, LOG_GROUPS[kind], job), seconds
    )


def tuning_of(step: Step) -> str:
    """Return the name of the step's tuning job, whose logs are those of its trainings; else
    empty.
    """
    return str((step.metadata.get("TuningJob") or {}).get("Arn", "")).rpartition("/")[2]


def of_job(account: Account, group: str, job: str) -> list[Stream]:
    """Return the streams of one job, by the host's number, then the newest first.

    Raises:
        ServiceError: CloudWatch refuses.
    """

    def read() -> list[Stream]:
        found = [_stream(group, one) for one in _described(account, group, f"{job}/")]
        return sorted(found, key=lambda one: (_number(one), -one.created))

    return account.lately(("streams of", group, job), read, max(2.0, account.seconds))


def chosen(found: Sequence[Stream], host: str, job: str) -> Stream | None:
    """Return the stream of that job (empty: the newest attempt) and host: ``algo-1``, or its own
    name.

    Raises:
        ServiceError: there are streams, but not of that host and job.
    """
    for one in found:
        if host == one.name:
            return one
    of_job = [one for one in found if one.job == (job or found[0].job)]
    for one in of_job:
        if host in ("", one.host, one.own):
            return one
    if not found:
        return None
    known = ", ".join(dict.fromkeys(one.host for one in found[:20]))
    which = f"host {host!r} of job {job or found[0].job!r}"
    raise ServiceError(f"there is no log of {which}: expected one of {known}")


def labels(found: Sequence[Stream], tuning: str = "") -> list[tuple[Stream, str]]:
    """Return each stream with its label: its host, the attempt if there are several, the training
    of a tuning job.
    """
    if tuning:
        return [(one, f"{one.job.removeprefix(tuning)[1:]}, {one.own}") for one in found]
    jobs = list(dict.fromkeys(one.job for one in found))[::-1]
    several = Counter((one.job, one.host) for one in found)
    return [
        (
            one,
            one.host
            + (f", attempt {jobs.index(one.job) + 1} of {len(jobs)}" if len(jobs) > 1 else "")
            + (f", {one.own}" if several[one.job, one.host] > 1 else ""),
        )
        for one in found
    ]


def _streams(account: Account, group: str, job: str) -> list[Stream]:
    """Return the streams of all attempts, which are jobs whose names differ in the random part."""
    match = _OWN_NAME.match(job)
    prefix = match[1] if match else f"{job}/"
    of_step = re.compile(re.escape(match[1]) + r"[A-Za-z0-9]+/") if match else re.compile("")
    found = [
        _stream(group, one)
        for one in _described(account, group, prefix)
        if of_step.match(one.get("logStreamName", ""))
    ]
    begun = {one.job: min(o.created for o in found if o.job == one.job) for one in found}
    return sorted(found, key=lambda one: (-begun[one.job], one.job, _number(one), -one.created))


def _of_trainings(account: Account, tuning: str) -> list[Stream]:
    """Return the streams of a tuning job's trainings, whose names start with its own, in order."""
    group = LOG_GROUPS["TrainingJob"]
    found = [_stream(group, one) for one in _described(account, group, f"{tuning}-")]
    return sorted(found, key=lambda one: (one.job, _number(one), -one.created))


def _stream(group: str, one: dict[str, Any]) -> Stream:
    return Stream(group, one.get("logStreamName", ""), one.get("creationTime", 0))


def _described(account: Account, group: str, prefix: str) -> list[dict[str, Any]]:
    with service_errors(f"looking for the log streams of {prefix}"):
        pages = account.logs.get_paginator("describe_log_streams").paginate(
            logGroupName=group, logStreamNamePrefix=prefix, PaginationConfig={"MaxItems": MOST}
        )
        try:
            found = [one for page in pages for one in page.get("logStreams", ())]
            return [one for one in found if one.get("logStreamName")]
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return []
            raise


def _number(one: Stream) -> tuple[int, str]:
    digits = re.search(r"(\d+)$", one.host)
    return int(digits[1]) if digits else 0, one.host
