"""Ask `trainyard why` for the causes of steps that really fail on an emulator.

python -m benchmarks.why [--json FILE]

Exit status 1: less than 90 % have the right cause, or a wrong one was stated as certain.

``drawn.csv`` keeps sources, expected classes and verdicts of 946 quoted failures, not their texts.
Up to the seventeenth draw the verdict is that of the table as it is now, of the later draws the one
when they were asked for the first time.
"""

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from benchmarks.definitions.service import ENDED, Service
from benchmarks.harness import JsonFile, keep, show_table
from benchmarks.why.failures import BUCKET, FAILURES, SCARCE, SOURCE, Failure
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.server import serve
from trainyard.runs.execution import Execution
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import causes_of

AT_ONCE = 3
"""Executions that run together."""

REFUSAL = "the reviewer found leaked labels"


Verdict = Literal["right", "unknown", "wrong", "wrong and certain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A failure, and the cause that was named."""

    name: str
    source: str
    """Origin of the failure."""

    right: tuple[str, ...]
    """The names of the causes that are right."""

    cause: Cause
    verdict: Verdict


def judge(name: str, source: str, right: Sequence[str], cause: Cause, says: str = "") -> Judged:
    """``says``: an expression that the sentence has to match, too."""
    is_unknown = "unknown" in right and cause.certainty == "unknown"
    is_right = is_unknown or cause.name in right and bool(re.search(says, cause.sentence))
    return Judged(
        name=name,
        source=source,
        right=tuple(right),
        cause=cause,
        verdict="right" if is_right else _not_right(cause),
    )


def _not_right(cause: Cause) -> Verdict:
    if cause.certainty == "certain":
        return "wrong and certain"
    return "unknown" if cause.certainty == "unknown" else "wrong"


def run(state: Path, names: Iterable[str] = FAILURES) -> Iterator[Judged]:
    """What is said of each failure, when it has happened.

    Raises:
        AssertionError: a step that should fail did not.
    """
    with serve(state, without_capacity=(SCARCE,)) as endpoint, apply_environment(endpoint.env):
        service = Service(endpoint.env)
        service.s3.create_bucket(Bucket=BUCKET)
        service.function("breaks", SOURCE)
        queue = service.queue()
        waiting, running = list(names), dict[str, str]()
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                name = waiting.pop(0)
                running[name] = _start(service, name, FAILURES[name], queue)
            _refuse(service, queue)
            for name, arn in list(running.items()):
                if _status(service, arn) in ENDED:
                    del running[name]
                    yield _judged(name, FAILURES[name], arn)
            time.sleep(0.2)


def _start(service: Service, name: str, failure: Failure, queue: str) -> str:
    pipeline = f"why-{name.replace(' ', '-')}"
    steps = [dict(step) for step in failure.steps]
    definition = {"Version": "2020-12-01", "Parameters": [], "Steps": steps}
    service.create(pipeline, definition, queue)
    return service.start(pipeline)


def _status(service: Service, arn: str) -> str:
    found = service.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
    return str(found["PipelineExecutionStatus"])


def _refuse(service: Service, queue: str) -> None:
    """Answer every callback that waits: failed."""
    for message in service.queues.receive_message(QueueUrl=queue).get("Messages", []):
        service.queues.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        token = json.loads(message["Body"])["token"]
        service.sagemaker.send_pipeline_execution_step_failure(
            CallbackToken=token, FailureReason=REFUSAL
        )


def _judged(name: str, failure: Failure, arn: str) -> Judged:
    causes = [cause for cause in causes_of(Execution(arn)) if cause.step == "Breaks"]
    assert causes, f"{name}: step Breaks of {arn} did not fail"
    return judge(name, failure.kind, failure.right, causes[0], failure.says)


def counts(all_judged: Sequence[Judged]) -> dict[str, int]:
    """Verdict → how often, and ``of`` how many."""
    found = Counter(one.verdict for one in all_judged)
    return {"right": found["right"], **found, "of": len(all_judged)}


WANTED = 0.9


def main(json_file: JsonFile = None) -> None:
    """Exit status 1 where `why` is not good enough."""
    with tempfile.TemporaryDirectory(prefix="why-") as state:
        rows = list(run(Path(state)))
    count = counts(rows)
    print(json.dumps(count))
    wrong = [(one.name, one.source, one.verdict, one.cause.name, ", ".join(one.right))
             for one in rows if one.verdict != "right"]  # fmt: skip
    if wrong:
        show_table(("failure", "from", "verdict", "said", "right"), wrong)
    keep(json_file, count)
    is_good = count["right"] >= WANTED * count["of"] and not count.get("wrong and certain")
    raise typer.Exit(0 if is_good else 1)


if __name__ == "__main__":
    typer.run(main)
