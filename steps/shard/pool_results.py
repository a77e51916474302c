"""Have the pool read raw objects and pack units; return the records of all of them."""

from collections.abc import Sequence

from steps.shard import shard_progress
from steps.shard.pool import Pool
from steps.shard.pool_tasks import Task
from steps.shard.quarantine import NAMED
from steps.shard.raw_objects import RawObject
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Packed, Read
from trainyard.common.errors import DataError


def read_objects(objects: Sequence[RawObject], plan: Plan, pool: Pool) -> list[Read]:
    """Read the raw objects. Raises: DataError: some cannot be read; it names up to NAMED."""
    _work_off("raw objects", objects, pool)
    identities = {raw.unit: shard_progress.identity(raw, plan) for raw in objects}
    records = (shard_progress.read(Read, *item, plan.progress) for item in identities.items())
    return [record for record in records if record]


def pack_units(units: Sequence[ShardObject], plan: Plan, pool: Pool) -> dict[ShardObject, Packed]:
    """Pack the units. Raises: DataError: a value is out of range; it names up to NAMED units."""
    _work_off("units", units, pool)
    records = {u: shard_progress.read(Packed, u.stem, u.identity, plan.progress) for u in units}
    return {unit: record for unit, record in records.items() if record}


def _work_off(what: str, tasks: Sequence[Task], pool: Pool) -> None:
    damaged = pool.work_off(what, tasks) if tasks else []
    if damaged:
        more = f"; and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
        raise DataError("; ".join(damaged[:NAMED]) + more)
