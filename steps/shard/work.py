"""What a process of the pool works off: a raw object to be read, or a unit to be packed."""

from collections.abc import Callable

from steps.shard.plan import Plan
from steps.shard.raw import RawObject
from steps.shard.shard_object import ShardObject

Task = RawObject | ShardObject


def begin(task: Task, plan: Plan, advance: Callable[[int], None]) -> Callable[[], None]:
    """Do all of it but to wait for the disk, which the function that is returned does.

    See ``reading.sort`` and ``packing.pack``: the job that waits for its workers needs no Arrow.
    """
    if isinstance(task, ShardObject):
        from steps.shard import packing

        return packing.pack(task, plan, advance)
    from steps.shard import reading

    return reading.sort(task, plan, advance)
