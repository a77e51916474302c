"""Survey the hashes of all records in one pass over the sorted runs, in bounded memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from steps.shard import sorted_runs
from steps.shard.duplicate_records import firsts
from steps.shard.raw_objects import RawObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Read
from steps.shard.survey import Survey, identity, ranges

ROWS = 2**21  # records that are processed together: about 100 MB


def survey(done: Mapping[RawObject, Read], plan: Plan) -> Survey:
    """Survey the keys of all records, in ranges of hashes, so in bounded memory."""
    sorted_runs.opened.cache_clear()  # an earlier run may have had other files of these names
    objects = sorted(done, key=lambda one: (one.folder, one.name))
    copies = set() if plan.identity else _copies(objects, done)
    files = [
        (run.name, rank)
        for rank, one in enumerate(objects)
        if one not in copies
        for run in done[one].runs
    ]
    lost = [done[one].records - done[one].quarantined if one in copies else 0 for one in objects]
    sizes = [
        sum(run.bytes for run in done[one].runs) if one not in copies else 0 for one in objects
    ]
    if plan.identity:
        for ranks, dropped in _duplicates(files, plan):
            for rank, count, size in zip(ranks, *dropped, strict=True):
                lost[rank] += count
                sizes[rank] -= size
    total: Counter[str] = Counter({"": 0} if not plan.by_folder else {})
    for one, size in zip(objects, sizes, strict=True):
        total[one.folder if plan.by_folder else ""] += size
    return Survey(
        identity=identity(objects, plan),
        names=[one.name for one in objects],
        runs=files,
        lost=lost,
        bytes=dict(total),
    )


def _copies(objects: Sequence[RawObject], done: Mapping[RawObject, Read]) -> set[RawObject]:
    """Return the objects that hold exactly the records of one before them.

    Needed where equal records may be two events or a repetition, which cannot be known; for
    whole files it can.
    """
    seen: set[str] = set()
    copies = set()
    for one in objects:
        content = done[one].content
        if done[one].runs and content in seen:
            copies.add(one)
        seen.add(content)
    return copies


def _duplicates(
    files: Sequence[tuple[str, int]], plan: Plan
) -> Iterator[tuple[Sequence[int], tuple[Sequence[int], Sequence[int]]]]:
    """Yield for each range of hashes: ranks, and the records and bytes of each left out."""
    paths = [(plan.scratch / name, rank) for name, rank in files]
    records = sum(sorted_runs.opened(path).records for path, _ in paths)
    count = -(-records // ROWS) or 1
    for low, high in ranges(count):
        part = sorted_runs.part(paths, low, high)
        if part is None:
            continue
        keys = part.keys
        out = ~firsts(keys.order, keys.tie, part.ranks)
        ranks = np.unique(part.ranks[out])
        where = np.searchsorted(ranks, part.ranks[out])
        bytes_ = np.bincount(where, keys.size[out], len(ranks)).astype(np.int64)
        yield ranks.tolist(), (np.bincount(where, minlength=len(ranks)).tolist(), bytes_.tolist())
        del part, keys
        sorted_runs.forget(paths)
