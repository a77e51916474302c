"""What a diagnosis is worth: the right cause, an honest "unknown", or a wrong cause."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainyard.runs.why.diagnosis import Cause, diagnose
from trainyard.runs.why.evidence import of_text

TEXTS = Path(__file__).with_name("texts")
Verdict = Literal["right", "unknown", "wrong", "wrong and certain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One failure, and what was said of it."""

    name: str
    source: str
    """Where the failure is from."""

    right: tuple[str, ...]
    """The names of the causes that are right."""

    cause: Cause
    verdict: Verdict


def judged(name: str, source: str, right: Sequence[str], cause: Cause, says: str = "") -> Judged:
    """``says``: an expression that the sentence has to match, too."""
    is_unknown = "unknown" in right and cause.certainty == "unknown"
    is_right = is_unknown or cause.name in right and bool(re.search(says, cause.sentence))
    return Judged(
        name=name,
        source=source,
        right=tuple(right),
        cause=cause,
        verdict="right" if is_right else _not_right(cause),
    )


def _not_right(cause: Cause) -> Verdict:
    if cause.certainty == "certain":
        return "wrong and certain"
    return "unknown" if cause.certainty == "unknown" else "wrong"


def quoted(file: Path) -> Iterator[Judged]:
    """The texts of a file of quoted failures, each diagnosed as `trainyard why --text` does."""
    for name, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
        cause = diagnose(of_text(entry["text"].strip()))
        yield judged(name, entry["source"], entry["right"], cause, entry.get("says", ""))


def counts(all_judged: Sequence[Judged]) -> dict[str, int]:
    """Verdict → how often, and ``of`` how many."""
    found = Counter(one.verdict for one in all_judged)
    return {"right": found["right"], **found, "of": len(all_judged)}
