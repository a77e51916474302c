"""Do what is missing: raw objects to read, units to pack; return the records of all of them."""

import logging
from collections.abc import Mapping, Sequence

from steps.shard import shard_progress
from steps.shard.pool import Pool
from steps.shard.pool_tasks import Task
from steps.shard.quarantine import NAMED
from steps.shard.raw_objects import RawObject
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Packed, Read
from trainyard.common.errors import DataError

log = logging.getLogger(__name__)


def read(
    objects: Sequence[RawObject], done: Mapping[RawObject, Read], plan: Plan, pool: Pool
) -> list[Read]:
    """Read the raw objects that are not ``done``, or lack a sorted run."""
    done = shard_progress.with_runs(done, plan, pool.processes)
    missing = [one for one in objects if one not in done]
    shard_progress.remove_leftovers(missing, plan)
    _work_off("raw objects", missing, pool)
    return list((done | shard_progress.already_read(missing, plan)).values())


def pack(units: Sequence[ShardObject], plan: Plan, pool: Pool) -> dict[ShardObject, Packed]:
    """Pack the units that are not packed yet."""
    done = shard_progress.already_packed(units, plan, pool.processes)
    if done:
        log.info("%d units are done already", len(done))
    missing = [one for one in units if one not in done]
    shard_progress.remove_half_packed(missing, plan)
    _work_off("units", missing, pool)
    for one in missing:
        packed = shard_progress.read(Packed, one.stem, one.identity, plan.progress)
        assert packed is not None  # its worker has just written it
        done[one] = packed
    return done


def _work_off(what: str, missing: Sequence[Task], pool: Pool) -> None:
    damaged = pool.work_off(what, missing) if missing else []
    if damaged:
        more = f"; and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
        raise DataError("; ".join(damaged[:NAMED]) + more)
