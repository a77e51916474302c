"""Which old executions may go from a state directory, with their jobs, logs and results.

Never what a registered package came from, or refers to, what a pipeline's latest definition names,
or what the step cache may still answer from.
"""

import bisect
import functools
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from trainyard.common.errors import EmulatorError
from trainyard.emulator.damage import refuse_pruning
from trainyard.emulator.jobs.transfers import ClientFault, split_uri
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.references import References, Unit

GB = 1_000_000_000
DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Pruned:
    """What goes: units, and objects as (bucket, key). ``size``: bytes of the state before."""

    size: int
    units: list[Unit] = field(default_factory=list)
    objects: set[tuple[str, str]] = field(default_factory=set)
    freed: int = 0
    """Bytes."""

    def told(self, verb: str) -> str:
        """One line: what and how much, of how much."""
        return (
            f"{len(self.units)} executions and single jobs with {len(self.objects)} objects "
            f"{verb}: {self.freed / 1e6:,.1f} of {self.size / 1e6:,.1f} MB"
        )


def choose(
    state: Path,
    store: ObjectStore,
    seconds: float | None,
    limit: int | None,
    *,
    cached: bool = False,
    inputs: bool = False,
) -> Pruned:
    """What is older than ``seconds``, and the oldest until at most ``limit`` bytes are left.

    ``store``: of that state. ``cached``: also what the step cache may answer from. ``inputs``: also
    what was uploaded for jobs that go, and that nothing else reads.

    Raises:
        EmulatorError: records that could not be read are set aside: they may name what would go.
    """
    size = size_of(state)
    if seconds is None and (limit is None or size <= limit):
        return Pruned(size)
    refuse_pruning(state)
    references = References(state)
    elsewhere = _elsewhere(state)
    free = [u for u in references.units if not u.registered and (cached or not u.cached)]
    now = time.time()
    old = sum(now - unit.made > seconds for unit in free) if seconds is not None else 0

    @functools.cache
    def of_oldest(count: int) -> Pruned:
        units = _unused(free[:count], references)
        objects = _objects(units, references, store, inputs, elsewhere)
        freed = sum(_size_of(unit, state) for unit in units) + sum(objects.values())
        return Pruned(size, units, set(objects), freed)

    if limit is None:
        return of_oldest(old)
    counts = range(old, len(free) + 1)
    least = bisect.bisect_left(counts, True, key=lambda n: size - of_oldest(n).freed <= limit)
    return of_oldest(counts[min(least, len(counts) - 1)])


def remove(found: Pruned, state: Path, store: ObjectStore) -> None:
    """Objects first: a step whose results are gone is no hit. What is cut short, the next ends."""
    for bucket, key in sorted(found.objects):
        store.delete(bucket, key)
    for unit in found.units:
        for stream in _streams(unit, state):
            stream.unlink()
        for directory in reversed(unit.directories):  # the execution last: it names its jobs
            shutil.rmtree(directory)


def bound(state: Path, store: ObjectStore, keep_gb: float) -> list[str]:
    """Keep the state within ``keep_gb`` as far as nothing that may be needed goes; what to say."""
    try:
        found = choose(state, store, None, int(keep_gb * GB))
    except EmulatorError as set_aside:
        return [str(set_aside)]
    remove(found, state, store)
    said = [found.told("that nothing needs removed")] if found.units else []
    if (left := found.size - found.freed) > keep_gb * GB:
        said.append(
            f"{state} has {left / GB:.1f} GB, more than --keep-gb {keep_gb:g}, and all of it may "
            "be needed; python -m trainyard prune --cached --dry-run says what the cache alone "
            "needs"
        )
    return said


def _unused(going: list[Unit], references: References) -> list[Unit]:
    """Without those whose jobs a unit that stays has its results from."""
    while True:
        leaving = {unit.name for unit in going}
        used = {j for unit in references.units if unit.name not in leaving for j in unit.uses}
        rest = [unit for unit in going if used.isdisjoint(unit.jobs)]
        if len(rest) == len(going):
            return going
        going = rest


def _objects(
    going: list[Unit],
    references: References,
    store: ObjectStore,
    inputs: bool,
    elsewhere: set[tuple[str, str]],
) -> dict[tuple[str, str], int]:
    """(bucket, key) → bytes of what they alone wrote, or read.

    ``elsewhere``: what other regions refer to.
    """
    leaving = {unit.name for unit in going}
    kept = _keys(references.kept(u for u in references.units if u.name not in leaving))
    kept |= elsewhere
    wanted = set()
    for unit in going:
        wanted |= references.written(unit) | (references.read(unit) if inputs else set())
    found = {}
    for bucket, prefix in _keys(wanted):
        if prefix and store.has_bucket(bucket):
            for info in store.list(bucket, prefix):
                beginnings = (info.key[:length] for length in range(len(info.key) + 1))
                if not any((bucket, beginning) in kept for beginning in beginnings):
                    found[bucket, info.key] = info.size
    return found


def _elsewhere(state: Path) -> set[tuple[str, str]]:
    """What the other regions' worlds refer to: nothing of theirs is pruned, S3 is everybody's."""
    others = [References(path) for path in state.glob("regions/*/")]
    return {key for other in others for key in _keys(other.kept(other.units))}


def _keys(uris: Iterable[str]) -> set[tuple[str, str]]:
    """(bucket, key) of each that is one."""
    found = set()
    for uri in uris:
        try:
            found.add(split_uri(uri))
        except ClientFault:
            continue  # a text that only begins like a URI
    return found


def _streams(unit: Unit, state: Path) -> list[Path]:
    starts = [quote(f"{job}/", safe="") for job in unit.jobs]
    return [path for start in starts for path in state.glob(f"logs/*/{start}*")]


def _size_of(unit: Unit, state: Path) -> int:
    return sum(size_of(path) for path in [*unit.directories, *_streams(unit, state)])


def size_of(path: Path) -> int:
    """Bytes of all files below, or of the file."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(found.lstat().st_size for found in path.rglob("*") if found.is_file())
