"""What a test really started in the emulator, and what became of it.

Read from the emulator's state and through its API, not from the test: a test that deletes its
pipeline has started its executions nevertheless.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.regions import region_of, within
from trainyard.emulator.server import Endpoint
from trainyard.language.statuses import ENDED, JOB_ENDED

_PRETENDING = re.compile(
    r"(ElasticMapReduce|AWSGlue|AmazonAthena|AWSStepFunctions)\.(Run|Start)\w+"
)
"""X-Amz-Target of what moto answers as if it had done it."""


class Watch:
    """Notes which operations the emulator answered, and which of them moto did."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.asked: Counter[str] = Counter()
        self.pretended: Counter[str] = Counter()
        self.refusals: list[str] = []
        app = endpoint.app
        app._sagemaker = self._noting(app._sagemaker)  # type: ignore[method-assign]
        app._moto.answer = self._telling(app._moto.answer)  # type: ignore[method-assign]

    def _telling(self, answer: Any) -> Any:
        def told(request: Any) -> Any:
            target = request.headers.get("X-Amz-Target", "")
            if _PRETENDING.fullmatch(target):
                self.pretended[target] += 1
            return answer(request)

        return told

    def _noting(self, handle: Any) -> Any:
        def noted(operation: str, request: dict) -> dict:
            try:
                answer = handle(operation, request)
            except ApiError as failure:
                self.refusals.append(f"{operation}: {failure.code}: {failure.message}"[:600])
                raise
            self.asked[operation] += 1
            return answer

        return noted

    def idle(self) -> bool:
        """Whether no execution and no job runs."""
        return not any(self._running())

    def _running(self) -> Iterator[bool]:
        for arn in executions(self._endpoint):
            yield self._describe(arn)["PipelineExecutionStatus"] not in ENDED
        for job in jobs(self._endpoint):
            yield job["status"] not in JOB_ENDED

    def _describe(self, arn: str) -> dict:
        request = {"PipelineExecutionArn": arn}
        with within(region_of(arn)):
            return self._endpoint.app.sagemaker.handle("DescribePipelineExecution", request)

    def collect(self) -> dict[str, Any]:
        """Everything :func:`benchmarks.sdk_tests.judge.judge` needs beside the test's outcome."""
        return {
            "asked": dict(self.asked),
            "pretended": sorted(self.pretended),
            "refusals": list(dict.fromkeys(self.refusals)),
            "executions": [self._execution(arn) for arn in executions(self._endpoint)],
            "jobs": jobs(self._endpoint),
        }

    def _execution(self, arn: str) -> dict[str, Any]:
        answer = self._describe(arn)
        with within(region_of(arn)):
            handle = self._endpoint.app.sagemaker.handle
        request = {"PipelineExecutionArn": arn, "SortOrder": "Ascending"}
        steps = handle("ListPipelineExecutionSteps", request)["PipelineExecutionSteps"]
        return {
            "arn": arn,
            "status": answer["PipelineExecutionStatus"],
            "reason": answer.get("FailureReason", "")[:800],
            "steps": [
                {
                    "name": step["StepName"],
                    "status": step["StepStatus"],
                    "reason": step.get("FailureReason", "")[:500],
                    "reused": "CacheHitResult" in step or "SelectiveExecutionResult" in step,
                    "metadata": step.get("Metadata", {}),
                }
                for step in steps
            ],
        }


def executions(endpoint: Endpoint) -> list[str]:
    """ARNs of all executions, those of deleted pipelines, too."""
    found = []
    for path in _records(endpoint, "executions/*/execution.json"):
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            found.append(json.loads(path.read_text())["answer"]["PipelineExecutionArn"])
    return found


def jobs(endpoint: Endpoint) -> list[dict[str, str]]:
    """``name``, ``kind``, ``arn``, ``status`` and ``reason`` of each job that was really run."""
    found = []
    for path in _records(endpoint, "jobs/*/job.json"):
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            document = json.loads(path.read_text())
            kind, record = document["kind"], document["describe"]
            found.append(
                {
                    "name": path.parent.name,
                    "kind": kind,
                    "arn": record.get(f"{kind}JobArn", ""),
                    "status": record[f"{kind}JobStatus"],
                    "reason": record.get("FailureReason", "")[:800],
                }
            )
    return found


def _records(endpoint: Endpoint, pattern: str) -> list[Path]:
    """Of every region; nothing deeper is looked into, for jobs come and go there."""
    state = Path(endpoint.env["AWS_CONFIG_FILE"]).parent
    return sorted([*state.glob(pattern), *state.glob(f"regions/*/{pattern}")])
