"""Have the pool read raw objects and pack units; return the records of all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from steps.shard import shard_progress
from steps.shard.manifests import MAX_OBJECTS
from steps.shard.pool import Pool, Task
from steps.shard.raw_objects import RawObject, ShardObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Kind, PackedUnit, Read
from trainyard.common.errors import DataError, TrainyardError

TaskKind = TypeVar("TaskKind", bound=Task)


def read_objects(objects: Sequence[RawObject], plan: Plan, pool: Pool) -> list[Read]:
    """Read the raw objects. Raises as ``_work_off``."""
    work = {raw: (raw.unit, shard_progress.identity(raw, plan)) for raw in objects}
    return [*_work_off("raw objects", Read, work, plan, pool).values()]


def pack_units(
    units: Sequence[ShardObject], plan: Plan, pool: Pool
) -> dict[ShardObject, PackedUnit]:
    """Pack the units. Raises as ``_work_off``."""
    work = {unit: (unit.stem, unit.identity) for unit in units}
    return _work_off("units", PackedUnit, work, plan, pool)


def _work_off(
    task_word: str,
    kind: type[Kind],
    work: Mapping[TaskKind, tuple[str, Mapping[str, Any]]],
    plan: Plan,
    pool: Pool,
) -> dict[TaskKind, Kind]:
    """Return each task's record, of which ``work`` has the stem and the identity.

    Raises:
        DataError: some objects cannot be read, or values are out of range; it names up to NAMED.
        TrainyardError: a worker is done and its record is not there, or damaged.
    """
    check_data(pool.work_off(task_word, [*work]) if work else [])
    records = {}
    for task, (stem, identity) in work.items():
        record = shard_progress.read(kind, stem, identity, plan.progress)
        if record is None:
            raise TrainyardError(
                f"{plan.progress / stem}.json: the record of finished work is missing or damaged; "
                "look at the disk, and run the step again"
            )
        records[task] = record
    return records


def check_data(damaged: Sequence[str]) -> None:
    """Raises: DataError: there are errors in the data; it has up to NAMED of them."""
    if damaged:
        more = f"; and {len(damaged) - MAX_OBJECTS} more" if len(damaged) > MAX_OBJECTS else ""
        raise DataError("; ".join(damaged[:MAX_OBJECTS]) + more)
