"""Which look at its test split a registered model was, counted again from what has happened.

The number in a verdict was told to the run, and whoever starts a run may tell it any. So an
approval looks into the ledger, and at every verdict of the pipeline: the same training done twice
is two models where it is not reproducible, and a copy of the data is the same test split.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from pipelines.approval import ledger
from pipelines.verify import recompute
from pipelines.verify.checks import Unchecked
from pipelines.verify.evidence import Evidence
from trainyard.common.errors import GateError
from trainyard.service import client, error_code, service_errors

THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Recount:
    """The number that a verdict used, and the one that was due."""

    used: int
    due: int
    champion: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A model that a gate has compared with a champion."""

    artifact: str | None
    test: str | None
    champion: str | None


def recount(evidence: Evidence) -> Recount | None:
    """None where the verdict compares with no champion; a run that nobody counted is counted now.

    Raises:
        ServiceError: AWS refused.
    """
    sagemaker, s3 = (client(name, evidence.region) for name in ("sagemaker", "s3"))
    document = json.loads(evidence.definition)
    with service_errors(f"counting the looks of {evidence.arn}"):
        written = ledger.take(s3, document, evidence.parameters)
        if written is None:
            return None
        gate = evidence.json(evidence.source("Constraints")["S3Uri"])
        ours = _judged(gate)
        pipeline = evidence.metadata["execution"].split("/")[1]
        before = [o for o in dict.fromkeys(verdicts(sagemaker, s3, pipeline))
                  if (o.test, o.champion) == (ours.test, ours.champion)]  # fmt: skip
    rank = before.index(ours) + 1 if ours in before else len(before) + 1
    used = gate.get("look")
    return Recount(
        used=used if isinstance(used, int) else 0,
        due=max(written.number, rank),
        champion=written.champion,
    )


def judged_at(evidence: Evidence, looks: Recount, checkout: Path) -> str:
    """What to say of the looks; where a later one was due, the verdict is computed again for it.

    Raises:
        GateError: at the level of the look that was due the model does not pass, or nobody can
            tell here.
    """
    if looks.used >= looks.due:
        return f"look {looks.used} at its test split"
    instead = f"look {looks.due} at its test split, judged as look {looks.used}"
    try:
        gate = recompute.judged(evidence, checkout, looks.due)["gate.json"]
    except Unchecked as why:
        raise GateError(
            f"{evidence.arn}: not approved: it was {instead}, and cannot be judged again here: "
            f"{why}; try in a checkout of commit {evidence.provenance.get('commit')}"
        ) from None
    if gate["verdict"] != "pass":
        raise GateError(f"{evidence.arn}: not approved: it was {instead}: {gate['reason']}")
    return f"{instead}, and again as it was due: pass"


def verdicts(sagemaker: Any, s3: Any, pipeline: str) -> Iterator[Judged]:
    """What every execution of the pipeline has judged, the oldest first; each job once."""
    pages = sagemaker.get_paginator("list_pipeline_executions").paginate(
        PipelineName=pipeline, SortBy="CreationTime", SortOrder="Ascending"
    )
    executions = [e["PipelineExecutionArn"] for p in pages for e in p["PipelineExecutionSummaries"]]
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = dict.fromkeys(pool.map(lambda arn: _gate_job(sagemaker, arn), executions))
        found = pool.map(lambda job: _verdict(sagemaker, s3, job), [job for job in jobs if job])
        yield from (_judged(gate) for gate in found if gate)


def _judged(gate: dict[str, Any]) -> Judged:
    return Judged(gate.get("artifact_sha256"), gate.get("test_fingerprint"), gate.get("champion"))


def _gate_job(sagemaker: Any, execution: str) -> str | None:
    pages = sagemaker.get_paginator("list_pipeline_execution_steps").paginate(
        PipelineExecutionArn=execution
    )
    for step in (step for page in pages for step in page["PipelineExecutionSteps"]):
        if step["StepName"] == "Gate" and step["StepStatus"] == "Succeeded":
            return step["Metadata"]["ProcessingJob"]["Arn"].rpartition("/")[2]
    return None


def _verdict(sagemaker: Any, s3: Any, job: str) -> dict[str, Any] | None:
    """gate.json; None where it is gone."""
    described = sagemaker.describe_processing_job(ProcessingJobName=job)
    outputs = described["ProcessingOutputConfig"]["Outputs"]
    uri = next(o["S3Output"]["S3Uri"] for o in outputs if o["OutputName"] == "gate")
    where = urlsplit(f"{uri}/gate.json")
    try:
        body = s3.get_object(Bucket=where.netloc, Key=where.path.lstrip("/"))["Body"].read()
        found = json.loads(body)
    except ClientError as error:
        if error_code(error) in ("NoSuchKey", "NoSuchBucket"):
            return None
        raise
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
