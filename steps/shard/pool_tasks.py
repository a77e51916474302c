"""Run a task of the pool: a raw object to be read, or a unit to be packed."""

from collections.abc import Callable

from steps.shard.raw_objects import RawObject
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import Plan

Task = RawObject | ShardObject


def begin(task: Task, plan: Plan, advance: Callable[[int], None]) -> Callable[[], None]:
    """Do all of the task except waiting for the disk, which the returned function does.

    See ``read_object.sort`` and ``pack_unit.pack``: the job that waits for its workers needs no
    Arrow.
    """
    if isinstance(task, ShardObject):
        from steps.shard import pack_unit

        return pack_unit.pack(task, plan, advance)
    from steps.shard import read_object

    return read_object.sort(task, plan, advance)
