"""The emulator is killed at a random moment: nothing of it is left, and nothing is lost.

A kill is SIGKILL while three random definitions run, objects are put and events are accepted. Then
no process of it may be left, nothing that was acknowledged may be lost, and a retry of what was
struck ends as its steps say.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from benchmarks.measured_process import run_emulator
from tests.trainyard.emulator.definitions import oracle
from tests.trainyard.emulator.definitions.generate import definitions
from tests.trainyard.emulator.definitions.service import Service, prepare

MARK = """import boto3

def answer(event, context):
    boto3.client("s3").put_object(Bucket="random", Key=f"mark{event}", Body=b"ran")
"""
GONE = 10.0  # seconds that a killed emulator's processes have to be gone
Counts = Counter[str]
"""Things that were acknowledged, by kind."""

pytestmark = [pytest.mark.sweep, pytest.mark.slow]


@pytest.mark.parametrize("number", range(50))
def test_nothing_that_was_acknowledged_is_lost_at_a_kill(number, tmp_path):
    assert kill(tmp_path, number, seed=0) == ""


def kill(scratch: Path, number: int, seed: int) -> str:
    """Kill the emulator at a random moment of three definitions; return what is wrong then."""
    chance = random.Random(f"{seed} {number}")
    drawn = definitions(3, 1000 * seed + number, processing=True)
    state, arns, before = scratch / "state", dict[str, dict](), dict[str, list[dict]]()
    with run_emulator(state) as (process, told):
        service = Service(told)
        queue = prepare(service)
        service.function("mark", MARK)
        for index, definition in enumerate(drawn):
            written = service.create(f"random-{index}", definition, queue)
            arns[service.start(f"random-{index}")] = written
        with service.answering(queue) as answered, writing(service) as acknowledged:
            end = time.monotonic() + chance.uniform(0, 3)
            while time.monotonic() < end:
                before |= {arn: service.steps(arn) for arn in arns}
            family = psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    wrong = [f"{orphan} outlived it" for orphan in orphans(family, state)]
    with run_emulator(state) as (_, told):
        service = Service(told)
        with service.answering(service.queue()):  # moto keeps queues in memory
            wrong += lost(service, acknowledged)
            wrong += undone(service, before, answered)
            for arn, definition in arns.items():
                wrong += go_on(service, arn, definition)
    return "; ".join(wrong)


@contextlib.contextmanager
def writing(service: Service) -> Iterator[Counts]:
    """Context in which objects and asynchronous events are sent; yields how many of each were
    acknowledged.
    """
    stop, done = threading.Event(), Counts()

    def write() -> None:
        with contextlib.suppress(ClientError, BotoCoreError):  # the kill
            while not stop.is_set():
                number = done["objects"]
                service.s3.put_object(Bucket="random", Key=f"k{number}", Body=f"{number}".encode())
                done["objects"] += 1
                if number % 20 == 0:
                    asked = {"FunctionName": "mark", "InvocationType": "Event"}
                    service.functions.invoke(**asked, Payload=f"{done['events']}".encode())
                    done["events"] += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def orphans(family: list[psutil.Process], state: Path) -> list[str]:
    """Processes that it started and that are there still, or that name its state."""
    _, alive = psutil.wait_procs(family, timeout=GONE)
    found = [str(process) for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(state) in word for word in process.cmdline()):
                found.append(str(process))
    return found


def lost(service: Service, acknowledged: Counts) -> Iterator[str]:
    """Objects and events that were acknowledged and are not there."""

    def body(key: str) -> bytes | None:
        with contextlib.suppress(ClientError):
            return service.s3.get_object(Bucket="random", Key=key)["Body"].read()
        return None

    for number in range(acknowledged["objects"]):
        if (found := body(f"k{number}")) != f"{number}".encode():
            yield f"object k{number} is {found!r}"
    for number in range(acknowledged["events"]):
        end = time.monotonic() + 30
        while body(f"mark{number}") is None and time.monotonic() < end:
            time.sleep(0.05)
        if body(f"mark{number}") is None:
            yield f"event {number} was accepted, and never run"
    if service.functions.get_function(FunctionName="mark")["Configuration"]["State"] != "Active":
        yield "function mark is gone"


def undone(
    service: Service, before: dict[str, list[dict]], answered: dict[str, bool]
) -> Iterator[str]:
    """What was seen to have succeeded is so still; an answered callback's step has ended."""
    now = {(arn, step["StepName"]): step for arn in before for step in service.steps(arn)}
    for arn, steps in before.items():
        for step in (one for one in steps if one["StepStatus"] == "Succeeded"):
            kept = now.get((arn, step["StepName"]))
            if kept is None or kept["StepStatus"] != "Succeeded":
                yield f"step {step['StepName']} had succeeded, and is {kept}"
    tokens = {s["Metadata"].get("Callback", {}).get("CallbackToken"): s for s in now.values()}
    for token, well in answered.items():
        wanted = "Succeeded" if well else "Failed"
        if token in tokens and tokens[token]["StepStatus"] != wanted:
            yield f"callback {token} was answered, and its step is {tokens[token]}"


def go_on(service: Service, arn: str, definition: dict) -> list[str]:
    """What is left of an execution is explained; so is what a retry makes of it."""
    answer, steps = service.wait_for_execution(arn), service.steps(arn)
    wrong = oracle.faults(definition, answer, steps)
    if oracle.LOST not in answer.get("FailureReason", ""):
        return wrong
    if any("Fail" in step["Metadata"] for step in steps):
        return wrong  # AWS refuses the retry, and so does the emulator
    token = {"ClientRequestToken": "r" * 32}
    service.sagemaker.retry_pipeline_execution(PipelineExecutionArn=arn, **token)
    return wrong + oracle.faults(definition, service.wait_for_execution(arn), service.steps(arn))
