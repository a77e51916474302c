"""Fifty open pages while a run goes on: what they cost the console's process."""

import contextlib
import itertools
import json
import re
import shutil
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import boto3

from benchmarks.console.processes import Started, Visitor, console, emulator
from benchmarks.console.state import IMAGE, ROLE
from benchmarks.harness import Figure, Section, Target
from trainyard.emulator.client_environment import applied

Update = tuple[float, int, str]
"""When it came, to which stream, of which page."""

Way = Callable[[Visitor, Sequence[str]], AbstractContextManager[list[Update]]]
PAGES = 50
LINES = 20  # a second, of the run's log
PIPELINE, STEP = "followed", "Chatty"
FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"


def measure(folder: Path, seconds: float, with_browser: bool) -> Section:
    """Follow a run for so long by event streams, and by a browser's tabs."""
    section = Section("following", f"{PAGES} open pages while a run logs {LINES} lines a second")
    section.columns = (
        "",
        "processor seconds a minute",
        "updates",
        "seconds between two of a log",
    )
    with emulator(folder / "followed") as (_, env), applied(env), console(env) as (here, visitor):
        run = _start(8 * seconds + 300)
        _row(section, "nobody looks", here, seconds / 4)
        ways: list[tuple[str, Way, int]] = [
            (f"{PAGES} event streams, 4 addresses", _streams, 1),
            (f"{PAGES} event streams, as many addresses", _streams, PAGES),
        ]
        if with_browser:
            ways.append((f"{PAGES} tabs of chromium, 4 addresses", _tabs, 1))
        for name, way, variants in ways:
            with way(visitor, _addresses(visitor, run, variants)) as updates:
                time.sleep(5)  # their beginning is not what is asked for
                figure = _row(section, name, here, seconds, updates)
            section.targets.append(Target(f"{name}, CPU s/min", figure, "≤", 5))
    section.notes.append("The pages are /runs, the run's, its step's and its log's, in turn.")
    return section


def _row(
    section: Section, what: str, here: Started, seconds: float, updates: list[Update] | None = None
) -> Figure:
    """What the console's process uses from now on."""
    before, count = here.cpu, len(updates or ())
    time.sleep(seconds)
    used = Figure(((here.cpu - before) / seconds * 60,))
    new = (updates or [])[count:]
    gaps = _gaps(new)
    said = f"{statistics.median(gaps):.1f} (at most {max(gaps):.1f})" if gaps else ""
    section.rows.append((what, f"{used.median:.2f}", f"{len(new):,}" if updates else "", said))
    section.data[what] = used.data() | {"megabytes": here.megabytes, "gaps": gaps}
    return used


def _gaps(updates: Sequence[Update]) -> list[float]:
    """Seconds between two updates of the same log page."""
    times: dict[tuple[int, str], list[float]] = {}
    for when, who, address in updates:
        if "/log" in address:
            times.setdefault((who, address), []).append(when)
    return [later - one for each in times.values() for one, later in itertools.pairwise(each)]


def _start(seconds: float) -> str:
    """The id of a run whose one step logs for so long."""
    often = f"$(seq {int(seconds * LINES)})"
    script = f"for i in {often}; do echo step=$i loss=0.$i; sleep {1 / LINES}; done"
    arguments: dict[str, Any] = {
        "RoleArn": ROLE,
        "AppSpecification": {"ImageUri": IMAGE, "ContainerEntrypoint": ["/bin/sh", "-c", script]},
        "ProcessingResources": {
            "ClusterConfig": {
                "InstanceType": "ml.m5.xlarge",
                "InstanceCount": 1,
                "VolumeSizeInGB": 10,
            }
        },
    }
    steps = [{"Name": STEP, "Type": "Processing", "Arguments": arguments}]
    text = json.dumps({"Version": "2020-12-01", "Steps": steps})
    sagemaker = boto3.session.Session().client("sagemaker")
    sagemaker.create_pipeline(PipelineName=PIPELINE, PipelineDefinition=text, RoleArn=ROLE)
    arn = sagemaker.start_pipeline_execution(PipelineName=PIPELINE)["PipelineExecutionArn"]
    time.sleep(5)  # until it logs
    return str(arn.rpartition("/")[2])


def _addresses(visitor: Visitor, execution: str, variants: int) -> list[str]:
    """50 live pages of four kinds; addresses that differ are different pages to the console."""
    run = f"/runs/{PIPELINE}/{execution}"
    kinds = ("/runs?q=", f"{run}?tab=", f"{run}/{STEP}?tab=", f"{run}/{STEP}/log?tab=")
    found = [f"{kinds[number % 4]}{number // 4 % variants or ''}" for number in range(PAGES)]
    live = [re.search(r'data-topic="([^"]+)"', visitor.get(address)[1]) for address in found]
    still = [address for address, topic in zip(found, live, strict=True) if topic is None]
    assert not still, f"not followed: {still}"
    return found


@contextlib.contextmanager
def _streams(visitor: Visitor, addresses: Sequence[str]) -> Iterator[list[Update]]:
    """Somebody who follows each page by a connection of its own; all the updates that came."""
    updates: list[Update] = []
    done = threading.Event()
    threads = [
        threading.Thread(target=_follow, args=(visitor, who, address, updates, done))
        for who, address in enumerate(addresses)
    ]
    for thread in threads:
        thread.start()
    try:
        yield updates
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert updates, "nothing was sent"


def _follow(
    visitor: Visitor, who: int, address: str, updates: list[Update], done: threading.Event
) -> None:
    name = str(uuid.uuid4())
    with contextlib.closing(visitor.stream(f"/events/{name}")) as lines:
        next(lines)
        visitor.post(f"/events/{name}", json.dumps({address: True}).encode())
        for line in lines:  # at least a comment, every 15 seconds
            if line.startswith(b"data:"):
                updates.append((time.monotonic(), who, address))
            if done.is_set():
                return


@contextlib.contextmanager
def _tabs(visitor: Visitor, addresses: Sequence[str]) -> Iterator[list[Update]]:
    """A browser that has each page open in a tab."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        context = browser.new_context()
        context.new_page().goto(visitor.address)
        for address in addresses:
            context.new_page().goto(f"{visitor.root}{address}")
        yield []
        browser.close()
