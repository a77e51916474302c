"""Texts by which a cause of failure is known, each with its source: ``signatures/*.toml``.

One file is one family; a new cause is a new entry. ``cause`` and ``fix`` may name the pattern's
groups in braces.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).with_name("signatures")
Level = Literal["service", "cause", "likely", "consequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One known text."""

    name: str
    """``family/name``."""

    level: Level
    """service: what AWS itself says of the job, and is certain. cause: whoever prints it has
    failed by it, and is certain. likely: it mostly means this. consequence: another rank, or what
    was called, has failed before; it counts where nothing else was found."""

    pattern: re.Pattern[str]
    cause: str
    """A sentence."""

    fix: str
    source: str
    """Where the text is from: a page, a thread, or the program that prints it."""

    def told(self, found: re.Match[str]) -> tuple[str, str]:
        """Cause and fix, with what the text says filled in."""
        groups = {name: text or "?" for name, text in found.groupdict().items()}
        return self.cause.format(**groups), self.fix.format(**groups)


def _read(folder: Path) -> tuple[Signature, ...]:
    return tuple(
        _signature(path.stem, name, entry)
        for path in sorted(folder.glob("*.toml"))
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
    )


def _signature(family: str, name: str, entry: Mapping[str, str]) -> Signature:
    return Signature(
        name=f"{family}/{name}",
        level=entry["level"],  # type: ignore[arg-type]  # a test reads each
        pattern=re.compile(entry["pattern"]),
        cause=entry["cause"],
        fix=entry["fix"],
        source=entry["source"],
    )


SIGNATURES: Iterable[Signature] = _read(FOLDER)
"""In the order of the families' names, and of a family's file."""
