"""What of a state directory cannot be read is set aside before anything reads it, and said.

A torn disk, an editor or another program may damage any document. It costs what the document was
of and nothing else: the emulator starts, and lists the rest. What is set aside lies below
<state>/damaged, under the path that it had.
"""

import errno
import functools
import json
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.common.errors import EmulatorError
from trainyard.common.whole_file import begin

log = logging.getLogger(__name__)

FOLDER = "damaged"
_OF_A_FOLDER = ("pipeline.json", "execution.json", "function.json")
"""Documents without which nothing tells what the other files of their folder are."""
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, IndexError, FileNotFoundError)


def check_writable(state: Path) -> None:
    """Make the state directory, or close it to other users: it holds secrets and all objects.

    Raises:
        EmulatorError: nothing can be kept there: a read-only or a full disk.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        if state.stat().st_mode & 0o077:
            state.chmod(0o700)
        begin(state / "writable", b"x").discard()
    except OSError as failure:
        fix = "make room there" if full(failure) else "make it writable"
        raise EmulatorError(
            f"{state} cannot keep the emulator's state: {failure.strerror}; {fix}, or name another "
            "--state"
        ) from failure


def full(failure: BaseException) -> bool:
    """Whether an operation failed because the disk is full."""
    if isinstance(failure, sqlite3.OperationalError):
        return "disk is full" in str(failure)
    return isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT)


def set_aside(state: Path) -> None:
    """Moves every document below ``state`` that cannot be read, and what cannot be without it."""
    for root in [state, *sorted(state.glob("regions/*"))]:
        _set_aside(root)


def refuse_pruning(state: Path) -> None:
    """Raise EmulatorError while documents are set aside: what they refer to cannot be known."""
    for folder in [state / FOLDER, *sorted(state.glob(f"regions/*/{FOLDER}"))]:
        if found := [path for path in folder.rglob("*") if path.is_file()]:
            raise EmulatorError(
                f"{folder} holds {len(found)} files that could not be read, and what they refer to "
                "may still be wanted, so nothing is pruned: put them right and back in their "
                "places, or move that folder away"
            )


def _set_aside(state: Path) -> None:
    for pattern, what, check in _KINDS:
        for path in sorted(state.glob(pattern)):
            try:
                check(json.loads(path.read_bytes()), path)
            except _DAMAGE as damage:
                name = path.parent.name if _one_each(pattern) else path.stem
                _move(state, path, what.format(name=name), damage)


def _one_each(pattern: str) -> bool:
    """Whether the folder has the name, and its document always the same: */job.json."""
    return "/*/" in pattern and "*" not in pattern.rpartition("/")[2]


def _move(state: Path, path: Path, what: str, damage: Exception) -> None:
    whole = path.parent if path.name in _OF_A_FOLDER else path
    target = state / FOLDER / whole.relative_to(state)
    while target.exists():
        target = target.with_name(f"{target.name}~")
    target.parent.mkdir(parents=True, exist_ok=True)
    whole.replace(target)
    log.error("%s cannot be read: %r; %s is lost, and lies in %s", path, damage, what, target)


def _needs(*keys: str) -> Callable[[Any, Path], None]:
    def check(document: Any, path: Path) -> None:
        for key in keys:
            document[key]
        if "CreationTime" in keys:
            float(document["CreationTime"])

    return check


def _object(document: Any, path: Path) -> None:
    document.items()


def _pipeline(document: Any, path: Path) -> None:
    _needs("PipelineArn", "PipelineName", "CreationTime", "LastModifiedTime")(document, path)
    for version in [document["versions"][-1], *document["versions"]]:
        text = path.with_name(f"definition-{version['PipelineVersionId']}.json").read_bytes()
        json.loads(text)


def _execution(document: Any, path: Path) -> None:
    _needs("PipelineArn", "PipelineExecutionArn", "PipelineExecutionStatus", "CreationTime")(
        document["answer"], path
    )
    _needs("parameters", "token", "pipeline")(document, path)
    for step in document["steps"].values():
        _needs("StepName", "StepStatus")(step, path)
    _readable(path.with_name("definition.json").read_bytes())


@functools.lru_cache(64)
def _readable(definition: bytes) -> None:
    """Executions of a pipeline have the same one: thousands, often."""
    json.loads(definition)


def _job(document: Any, path: Path) -> None:
    kind, described = document["kind"], document["describe"]
    names = (f"{kind}Job{part}" for part in ("Name", "Arn", "Status"))
    _needs(*names, "CreationTime", "LastModifiedTime")(described, path)
    list(document["outputs"])


def _tuning(document: Any, path: Path) -> None:
    names = (f"HyperParameterTuningJob{part}" for part in ("Arn", "Status"))
    _needs(*names, "CreationTime", "LastModifiedTime")(document["answer"], path)
    document["request"]["HyperParameterTuningJobName"]
    for trial in document["trials"]:
        _needs("name", "definition")(trial, path)


def _tags(document: Any, path: Path) -> None:
    for tags in document.values():
        tags.items()


_KINDS: tuple[tuple[str, str, Callable[[Any, Path], None]], ...] = (
    ("pipelines/*/pipeline.json", "pipeline {name}", _pipeline),
    ("executions/*/execution.json", "execution {name}", _execution),
    ("jobs/*/job.json", "job {name}", _job),
    ("tuning/*/tuning.json", "tuning job {name}", _tuning),
    ("models/*.json", "model {name}", _needs("ModelName", "ModelArn", "CreationTime")),
    (
        "endpoint-configs/*.json",
        "endpoint configuration {name}",
        _needs("EndpointConfigName", "EndpointConfigArn", "CreationTime", "ProductionVariants"),
    ),
    (
        "registry/groups/*.json",
        "model package group {name}",
        _needs("ModelPackageGroupName", "CreationTime", "_tags", "_next"),
    ),
    (
        "registry/packages/**/*.json",
        "version {name} of a model package",
        _needs("ModelPackageArn", "CreationTime", "_tags"),
    ),
    ("registry.json", "the model registry of before", _needs("groups", "packages")),
    (
        "stored/*/*.json",
        "what is called {name}",
        _needs("CreationTime", "LastModifiedTime", "_tags"),
    ),
    ("functions/*/function.json", "function {name}", _needs("configuration", "tags")),
    ("functions/*.json", "{name} of Lambda functions", _object),
    ("cloudwatch/*.json", "{name} of CloudWatch", _object),
    ("tags.json", "every tag of pipelines and jobs", _tags),
)
