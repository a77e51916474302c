"""Run random definitions on the emulator, and kill it under some: does each end as its steps say?

python -m benchmarks.definitions [--count 200] [--kills 50] [--seed 0] [--json FILE]

Definitions are drawn by hypothesis from Lambda, Condition, Fail, Callback, ForEach, Cleanup and,
rarely, Processing steps, with references, triggers, branches and loops. An oracle that shares no
code with the emulator holds every step to its inputs, and every step that did not run to a reason.

A kill is SIGKILL of the emulator at a random moment while three definitions run, objects are put
and events are accepted. Then no process of it may be left, nothing that was acknowledged may be
lost, and a retry of what was struck ends as its steps say.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.progress import track

from benchmarks.definitions import oracle
from benchmarks.definitions.generate import definitions
from benchmarks.definitions.service import Service
from benchmarks.harness import JsonFile, keep
from benchmarks.measured_process import emulator
from trainyard.emulator.server import serve

MARK = "def answer(event, context):\n    open(event, 'w').close()\n"
GONE = 10.0  # seconds that a killed emulator's processes have to be gone


@dataclass
class Figures:
    """Counts of what was run, and what was wrong."""

    ended: Counter = field(default_factory=Counter)
    """Status → executions."""
    steps: Counter = field(default_factory=Counter)
    """(type, status) → steps."""
    wrong: list[str] = field(default_factory=list)
    kills: int = 0
    struck: int = 0
    """Executions that were running at a kill."""
    retried: int = 0
    acknowledged: Counter = field(default_factory=Counter)
    """Things acknowledged before a kill, by kind → number that was looked for after it."""

    def judge(self, number: object, definition: dict, answer: dict, steps: list[dict]) -> None:
        self.ended[answer["PipelineExecutionStatus"]] += 1
        types = [(next(iter(step["Metadata"]), "none"), step["StepStatus"]) for step in steps]
        self.steps.update(types)
        found = oracle.faults(definition, answer, steps)
        self.wrong += [f"definition {number}: {fault}" for fault in found]


def run(scratch: Path, count: int, seed: int, processing: bool = True) -> Figures:
    """Each definition once, four at a time."""
    figures = Figures()
    with serve(scratch) as endpoint:
        service = Service(endpoint.env)
        queue = service.prepare()

        def one(numbered: tuple[int, dict]) -> tuple[int, dict, dict, list[dict]]:
            number, definition = numbered
            written = service.create(f"random-{number}", definition, queue)
            arn = service.start(f"random-{number}")
            return number, written, service.ended(arn), service.steps(arn)

        with service.answering(queue), ThreadPoolExecutor(4) as pool:
            drawn = enumerate(definitions(count, seed, processing))
            for number, written, answer, steps in pool.map(one, drawn):
                figures.judge(number, written, answer, steps)
    return figures


# kills


@contextlib.contextmanager
def started(state: Path) -> Iterator[tuple[subprocess.Popen, Service]]:
    """An emulator in a process of its own, and its clients."""
    with emulator(state) as (process, told):
        yield process, Service(told)


def kill(scratch: Path, number: int, seed: int, figures: Figures) -> None:
    """Start three definitions, kills the emulator at a random moment, looks at what is left."""
    chance = random.Random(f"{seed} {number}")
    drawn = definitions(3, 1000 * seed + number, processing=True)
    (scratch / "marks").mkdir(parents=True)
    state, arns, before = scratch / "state", dict[str, dict](), dict[str, list[dict]]()
    with started(state) as (process, service):
        queue = service.prepare()
        service.function("mark", MARK)
        for index, definition in enumerate(drawn):
            written = service.create(f"random-{index}", definition, queue)
            arns[service.start(f"random-{index}")] = written
        with service.answering(queue) as answered, _writing(service, scratch) as acknowledged:
            end = time.monotonic() + chance.uniform(0, 3)
            while time.monotonic() < end:
                before |= {arn: service.steps(arn) for arn in arns}
            family = psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    figures.kills += 1
    name = f"kill {number}"
    figures.wrong += [f"{name}: {orphan} outlived it" for orphan in _orphans(family, state)]
    with started(state) as (_, service):
        queue = service.queue()  # moto keeps queues in memory
        with service.answering(queue):
            figures.wrong += [
                f"{name}: {w}" for w in _lost(service, scratch, acknowledged, figures)
            ]
            figures.wrong += [f"{name}: {w}" for w in _undone(service, before, answered, figures)]
            for arn, definition in arns.items():
                _go_on(service, name, arn, definition, figures)


@contextlib.contextmanager
def _writing(service: Service, scratch: Path) -> Iterator[Counter]:
    """Objects and asynchronous events, one after another; how many of each were acknowledged."""
    stop, done = threading.Event(), Counter[str]()

    def write() -> None:
        with contextlib.suppress(ClientError, BotoCoreError):  # the kill
            while not stop.is_set():
                number = done["objects"]
                service.s3.put_object(Bucket="random", Key=f"k{number}", Body=f"{number}".encode())
                done["objects"] += 1
                if number % 20 == 0:
                    mark = f'"{scratch}/marks/{done["events"]}"'.encode()
                    service.functions.invoke(
                        FunctionName="mark", InvocationType="Event", Payload=mark
                    )
                    done["events"] += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def _orphans(family: list[psutil.Process], state: Path) -> list[str]:
    """Processes that it started and that are there still, or that name its state."""
    _, alive = psutil.wait_procs(family, timeout=GONE)
    found = [str(process) for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(state) in word for word in process.cmdline()):
                found.append(str(process))
    return found


def _lost(
    service: Service, scratch: Path, acknowledged: Counter, figures: Figures
) -> Iterator[str]:
    figures.acknowledged += acknowledged
    for number in range(acknowledged["objects"]):
        try:
            body = service.s3.get_object(Bucket="random", Key=f"k{number}")["Body"].read()
        except ClientError:
            body = b"nothing"
        if body != f"{number}".encode():
            yield f"object k{number} is {body!r}"
    for number in range(acknowledged["events"]):
        mark, end = scratch / "marks" / str(number), time.monotonic() + 30
        while not mark.exists() and time.monotonic() < end:
            time.sleep(0.05)
        if not mark.exists():
            yield f"event {number} was accepted, and never run"
    if service.functions.get_function(FunctionName="mark")["Configuration"]["State"] != "Active":
        yield "function mark is gone"


def _undone(
    service: Service, before: dict[str, list[dict]], answered: dict[str, bool], figures: Figures
) -> Iterator[str]:
    """What was seen to have succeeded is so still; an answered callback's step has ended."""
    now = {(arn, step["StepName"]): step for arn in before for step in service.steps(arn)}
    for arn, steps in before.items():
        for step in steps:
            kept = now.get((arn, step["StepName"]))
            if step["StepStatus"] == "Succeeded":
                figures.acknowledged["steps"] += 1
                if kept is None or kept["StepStatus"] != "Succeeded":
                    yield f"step {step['StepName']} had succeeded, and is {kept}"
    tokens = {s["Metadata"].get("Callback", {}).get("CallbackToken"): s for s in now.values()}
    for token, well in answered.items():
        figures.acknowledged["callbacks"] += 1
        wanted = "Succeeded" if well else "Failed"
        if token in tokens and tokens[token]["StepStatus"] != wanted:
            yield f"callback {token} was answered, and its step is {tokens[token]}"


def _go_on(service: Service, name: str, arn: str, definition: dict, figures: Figures) -> None:
    """What is left of an execution is explained; so is what a retry makes of it."""
    answer, steps = service.ended(arn), service.steps(arn)
    figures.judge(name, definition, answer, steps)
    if oracle.LOST not in answer.get("FailureReason", ""):
        return
    figures.struck += 1
    if any("Fail" in step["Metadata"] for step in steps):
        return  # AWS refuses the retry, and so does the emulator
    service.sagemaker.retry_pipeline_execution(
        PipelineExecutionArn=arn, ClientRequestToken="r" * 32
    )
    figures.retried += 1
    figures.judge(f"{name}, retried", definition, service.ended(arn), service.steps(arn))


console = Console()


def main(
    count: Annotated[int, typer.Option(min=0, help="Definitions to run undisturbed.")] = 200,
    kills: Annotated[int, typer.Option(min=0, help="Times that the emulator is killed.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the definitions and of the moments.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if anything is not explained, left over or lost."""
    with tempfile.TemporaryDirectory(prefix="definitions-") as scratch:
        figures = run(Path(scratch) / "run", count, seed) if count else Figures()
        _show("undisturbed", figures)
        killed = Figures()
        for number in track(range(kills), "kills", console=console):
            kill(Path(scratch) / f"{number}", number, seed, killed)
        _show("killed", killed)
    keep(json_file, [_plain(figures), _plain(killed)])
    raise typer.Exit(1 if figures.wrong or killed.wrong else 0)


def _plain(figures: Figures) -> dict:
    steps = {f"{kind} {status}": n for (kind, status), n in sorted(figures.steps.items())}
    return {
        "executions": dict(figures.ended),
        "steps": steps,
        "kills": figures.kills,
        "struck": figures.struck,
        "retried": figures.retried,
        "acknowledged": dict(figures.acknowledged),
        "wrong": figures.wrong,
    }


def _show(title: str, figures: Figures) -> None:
    console.print(f"{title}:", json.dumps(_plain(figures), indent=1), highlight=False)


if __name__ == "__main__":
    typer.run(main)
