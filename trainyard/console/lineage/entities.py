"""SageMaker's own lineage entities, where it keeps them: which job produced an object.

SageMaker makes an artifact for a job's inputs and outputs, known by its SourceUri, and a trial
component for the job, called ``<job>-aws-training-job`` and alike (developer guide, Amazon
SageMaker-created tracking entities). They are asked where no run is known; the job's own
description has the last word.
"""

import re
from collections.abc import Iterator

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.lineage.jobs import Job, is_of, read_job

_JOB = re.compile(
    r":experiment-trial-component/(?P<job>.+)-aws-(?P<kind>training|processing|transform)-job$"
)
_KINDS = {"training": "TrainingJob", "processing": "ProcessingJob", "transform": "TransformJob"}

MOST = 10
"""Artifacts of one URI that are followed."""

REMEMBERED = 600.0


def producer(account: Account, uri: str) -> Job | None:
    """The job that SageMaker's lineage says produced ``uri``, and that says so itself; None where
    nothing is known, or the service keeps no lineage."""

    def read() -> Job | None:
        if not _is_kept(account):
            return None
        for kind, name in _told(account, uri):
            try:
                job = read_job(account, kind, name)
            except ServiceError:  # it is gone; its entity has outlived it
                continue
            if any(is_of(uri, written) for written in job.writes):
                return job
        return None

    return account.lately(("producer", uri), read, REMEMBERED)


def _is_kept(account: Account) -> bool:
    """Whether the service answers at all: the emulator keeps no lineage."""

    def read() -> bool:
        try:
            account.sagemaker.list_artifacts(MaxResults=1)
        except (ClientError, BotoCoreError):
            return False
        return True

    return account.lately("lineage is kept", read, REMEMBERED)


def _told(account: Account, uri: str) -> Iterator[tuple[str, str]]:
    """(kind, name) of jobs above the artifacts of that URI."""
    try:
        listed = account.sagemaker.list_artifacts(SourceUri=uri, MaxResults=MOST)
        summaries = listed.get("ArtifactSummaries") or ()
        arns = [one["ArtifactArn"] for one in summaries if "ArtifactArn" in one]
        if not arns:
            return
        answer = account.sagemaker.query_lineage(
            StartArns=arns, Direction="Ascendants", IncludeEdges=False, MaxDepth=1
        )
    except (ClientError, BotoCoreError):  # no permission: as good as none
        return
    for vertex in answer.get("Vertices") or ():
        if found := _JOB.search(vertex.get("Arn", "")):
            yield _KINDS[found["kind"]], found["job"]
