"""Move unreadable documents of a state directory aside and log them, before anything reads them.

A power failure, an editor or another program may damage any document. Only what that document
described is lost: the emulator starts and lists the rest. Damaged documents are moved to
<state>/damaged, under the path that they had.
"""

import errno
import functools
import json
import logging
import sqlite3
from collections.abc import Collection
from pathlib import Path

from trainyard.common.atomic_file import write_draft
from trainyard.common.errors import EmulatorError
from trainyard.emulator.regions import list_world_folders

log = logging.getLogger(__name__)

FOLDER = "damaged"
_OF_A_FOLDER = ("pipeline.json", "execution.json", "function.json")
"""Documents without which the other files in their folder cannot be interpreted, so the whole
folder is moved.
"""
_KINDS = {  # path pattern of documents to the keys that they must have
    "pipelines/*/pipeline.json": "PipelineArn PipelineName CreationTime LastModifiedTime versions",
    "executions/*/execution.json": "answer parameters token pipeline steps",
    "jobs/*/job.json": "kind describe outputs",
    "tuning/*/tuning.json": "answer request trials",
    "stored/Model/*.json": "ModelName ModelArn",
    "stored/EndpointConfig/*.json": "EndpointConfigName ProductionVariants",
    "registry/ModelPackageGroup/*.json": "ModelPackageGroupName CreationTime _tags _next",
    "registry/ModelPackage/**/*.json": "ModelPackageArn CreationTime _tags",
    "stored/*/*.json": "CreationTime LastModifiedTime _tags",
    "events/rules/*.json": "name made State targets tags",
    "events/schedules/*.json": "name short group next State Target ScheduleExpression",
    "functions/*/function.json": "configuration tags",
    "cloudwatch/*.json": "",
    "tags.json": "",
}


def prepare_state_directory(state: Path) -> None:
    """Create the state directory, and deny other users access to it, because it contains secrets
    and all objects.

    Raises:
        EmulatorError: it cannot be written, because the disk is read-only or full.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        if state.stat().st_mode & 0o077:
            state.chmod(0o700)
        write_draft(state / "writable", b"x").discard()
    except OSError as failure:
        fix = "make room there" if is_disk_full(failure) else "make it writable"
        raise EmulatorError(
            f"{state} cannot store the emulator's state: {failure.strerror}; {fix}, or choose "
            "another --state"
        ) from failure


def is_disk_full(failure: BaseException) -> bool:
    """Return whether an operation failed because the disk is full."""
    if isinstance(failure, sqlite3.OperationalError):
        return "disk is full" in str(failure)
    return isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT)


def set_aside_damaged_documents(state: Path) -> None:
    """Move aside every unreadable document below ``state``, with the files that cannot be used
    without it.
    """
    for root in list_world_folders(state):
        for pattern, keys in _KINDS.items():
            for path in sorted(root.glob(pattern)):
                try:
                    _check_document(path, keys.split())
                except (ValueError, KeyError, TypeError, FileNotFoundError) as damage:
                    _move_damaged_state(root, path, damage)


def check_pruning_allowed(state: Path) -> None:
    """Raise EmulatorError if documents have been set aside, because they may refer to what pruning
    would delete.
    """
    for folder in [root / FOLDER for root in list_world_folders(state)]:
        if files := [path for path in folder.rglob("*") if path.is_file()]:
            raise EmulatorError(
                f"{folder} contains {len(files)} files that could not be read, and what they refer "
                "to may still be needed, so nothing is pruned: repair them and move them back to "
                "their paths, or move that folder away"
            )


def _check_document(path: Path, keys: Collection[str]) -> None:
    """Raise an error if a document is not an object with those keys, or if a definition that
    belongs to it is missing or not JSON.
    """
    document = json.loads(path.read_bytes())
    if not isinstance(document, dict):
        raise TypeError("it is not a JSON object")
    for key in keys:
        document[key]
    if path.name == "pipeline.json":
        # The last version first, because an empty list of versions is damage, too.
        for version in [document["versions"][-1], *document["versions"]]:
            _check_json(
                path.with_name(f"definition-{version['PipelineVersionId']}.json").read_bytes()
            )
    if path.name == "execution.json":
        _check_json(path.with_name("definition.json").read_bytes())


@functools.lru_cache(64)
def _check_json(definition: bytes) -> None:
    """Raise ValueError if a definition is not JSON. Cached, because thousands of executions often
    have the same definition.
    """
    json.loads(definition)


def _move_damaged_state(state: Path, path: Path, damage: Exception) -> None:
    unit = path.parent if path.name in _OF_A_FOLDER else path
    target = state / FOLDER / unit.relative_to(state)
    while target.exists():
        target = target.with_name(f"{target.name}~")
    target.parent.mkdir(parents=True, exist_ok=True)
    unit.replace(target)
    log.error("%s cannot be read: %r; it is lost and was moved to %s", path, damage, target)
