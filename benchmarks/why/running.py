"""The failures, really run: a pipeline each on one emulator, and what `why` says of each."""

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.definitions.service import ENDED, Service
from benchmarks.why.failures import BUCKET, FAILURES, SCARCE, SOURCE, Failure
from benchmarks.why.judging import Judged, judged
from trainyard.emulator.environment import applied
from trainyard.emulator.server import serve
from trainyard.runs.execution import Execution
from trainyard.runs.why.reading import causes_of

AT_ONCE = 3
"""Executions that run together."""

REFUSAL = "the reviewer found leaked labels"


def run(state: Path, names: Iterable[str] = FAILURES) -> Iterator[Judged]:
    """What is said of each failure, when it has happened.

    Raises:
        AssertionError: a step that should fail did not.
    """
    with serve(state, without_capacity=(SCARCE,)) as endpoint, applied(endpoint.env):
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
    return judged(name, failure.kind, failure.right, causes[0], failure.says)
