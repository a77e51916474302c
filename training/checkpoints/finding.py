"""Which checkpoints the machines have together, and on which of them each file lies.

The metadata are read once: the first machine that has a checkpoint's marker sends it to rank 0, and
rank 0 to all. Of the files themselves a machine looks only whether they are there, and how long.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training import marker
from training.checkpoints import peers
from training.checkpoints.blocks import Local, Source, Torn, hashes_path
from training.checkpoints.meeting import Alone, Meeting
from training.marker import Damaged, Marker
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)
THERE, ABSENT = "+", "-"


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint that some machine has the marker of; or one that is damaged, and why."""

    step: int
    holder: int = 0
    digest: str = ""
    damage: str = ""


def survey(folder: Path) -> list[tuple[int, str, str]]:
    """(step, digest of the marker, what is wrong with it) of each checkpoint on this machine."""
    told = [(step, "", f"has no {marker.NAME}: it was not finished") for step in
            marker.unfinished(folder)]  # fmt: skip
    for step in marker.steps(folder):
        try:
            marker.examined(marker.folder_of(folder, step))
            content = (marker.folder_of(folder, step) / marker.NAME).read_bytes()
            told.append((step, hashlib.sha256(content).hexdigest(), ""))
        except (Damaged, OSError) as error:
            told.append((step, "", str(error)))
    return told


def candidates(meeting: Meeting | Alone, mine: list[tuple[int, str, str]]) -> list[Found]:
    """All checkpoints of all machines, newest first; what is whole on one is not told of another.

    Args:
        mine: ``survey`` of this machine, by one of its ranks; else nothing.
    """
    return [Found(*one) for one in meeting.decide(mine, _merged)]


def _merged(told: Sequence[list[tuple[int, str, str]]]) -> list[tuple[int, int, str, str]]:
    holders: dict[tuple[int, str], int] = {}
    damages: dict[int, str] = {}
    for rank, one in enumerate(told):
        for step, digest, damage in one:
            if digest:
                holders.setdefault((step, digest), rank)
            else:
                damages.setdefault(step, damage)
    found = [(step, rank, digest, "") for (step, digest), rank in holders.items()]
    whole = {step for step, _ in holders}
    found += [(step, 0, "", damage) for step, damage in damages.items() if step not in whole]
    return sorted(found, key=lambda one: (-one[0], one[1]))


def relayed(meeting: Meeting | Alone, found: Found, folder: Path) -> Marker:
    """The marker of a checkpoint, from the machine that has it.

    Raises:
        Torn: it is damaged by now.
    """
    mine = None
    if meeting.rank == found.holder:
        mine = (folder / marker.NAME).read_text(encoding="utf-8")
    content = meeting.decide(mine, lambda said: said[found.holder])
    try:
        return marker.parsed(content.encode())
    except Damaged as error:
        raise Torn(str(error)) from None


@dataclass
class Files:
    """Where the files of one checkpoint are, while it is read.

    Attributes:
        said: the marker, with a table in any case.
    """

    folder: Path
    said: Marker
    here: str
    """``THERE`` or ``ABSENT`` for each of its files on this machine."""
    elsewhere: dict[int, str]
    """The same of other machines, by the rank that serves them."""
    addresses: dict[int, tuple[str, int]]
    word: str
    rank: int
    server: peers.Server | None = None

    def opened(self, name: str) -> Source:
        """A shard's bytes, or its hashes'."""
        shards = self.said.names
        number = shards.index(str(Path(name).with_suffix(".safetensors")))
        if self.here[number] == THERE:
            return Local(self.folder / name)
        having = [n for n, codes in sorted(self.elsewhere.items()) if codes[number] == THERE]
        first = self.rank % len(having)
        order = having[first:] + having[:first]  # not all ranks ask the same machine
        log.info("%s: comes from rank %d", self.folder / name, order[0])
        return peers.Remote(name, [self.addresses[n] for n in order], self.word)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()


def located(
    meeting: Meeting | Alone,
    folder: Path,
    said: Marker,
    lead: int,
    advance: Callable[[int], None],
) -> Files:
    """Where the files are; the machines that have what others lack serve it from now on.

    Args:
        lead: the rank that looks after this rank's machine.

    Raises:
        Torn: no machine has one of the files.
    """
    leads = meeting.rank == lead
    mine = _codes(folder, said, advance) if leads else None
    answer = meeting.decide(mine, lambda told: _placed(said, told))
    if "torn" in answer:
        raise Torn(answer["torn"])
    codes = {int(rank): one for rank, one in answer["codes"].items()}
    files = Files(folder, said, codes[lead], codes, {}, answer["word"], meeting.rank)
    if any(ABSENT in one for one in codes.values()):
        if leads and THERE in codes[lead]:
            names = [one for n, name in enumerate(said.names) if codes[lead][n] == THERE
                     for one in (name, hashes_path(Path(name)).name)]  # fmt: skip
            files.server = peers.Server(folder, names, answer["word"])
        address = files.server.address if files.server else None
        try:
            every = meeting.decide(address, lambda told: told)
        except TrainingError:
            files.close()
            raise
        files.addresses = {rank: tuple(one) for rank, one in enumerate(every) if one}
    return files


def _codes(folder: Path, said: Marker, advance: Callable[[int], None]) -> dict[str, Any]:
    """What of a checkpoint is on this machine."""
    codes, why = "", {}
    for number, name in enumerate(said.names):
        wrong = marker.problem(folder, name, said.files[name])
        codes += ABSENT if wrong else THERE
        if wrong and wrong != _missing(name):  # that is the rule where each machine has its own
            why[str(number)] = wrong
    return {"codes": codes, "why": why}


def _missing(name: str) -> str:
    return f"{name} is missing"


def _placed(said: Marker, told: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    codes = {rank: one["codes"] for rank, one in enumerate(told) if one}
    for number, name in enumerate(said.names):
        if all(one[number] == ABSENT for one in codes.values()):
            why = (one["why"].get(str(number)) for one in told if one)
            return {"torn": next(filter(None, why), _missing(name))}
    return {"codes": codes, "word": peers.word()}
