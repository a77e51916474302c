"""Why a layout lost: one sentence with the figures that decided."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foresight.advice import Candidate
from trainyard.foresight.interval import Spread
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Question
from trainyard.foresight.rules_of_thumb import figure
from trainyard.foresight.setting import Setting

TENTH = 0.1
EQUAL = 0.01
"""Steps whose times differ by a smaller share count as equally fast."""


def why_not(other: Candidate, best: Candidate, question: Question) -> str:
    """Return why ``other`` stands below ``best``, which is ranked first."""
    if other.memory.fits != "yes":
        return f"may not fit: {fills(other.memory)}"
    bound = misses(other, question)
    if bound and not misses(best, question):
        return bound
    if other.place == best.place:
        return _slower(other, best)
    return _dearer(other, best)


def misses(other: Candidate, question: Question) -> str | None:
    """Return the bound that it breaks at p90, and by how much; None if it keeps the bounds."""
    if question.deadline is not None and other.hours.p90 > question.deadline:
        late, asked = lasting(other.hours.p90), lasting(question.deadline)
        return f"misses the deadline: {late} at p90, for {asked}"
    if question.budget is not None and other.usd.p90 > question.budget:
        return f"over the budget: {dollars(other.usd.p90)} at p90, for {dollars(question.budget)}"
    return None


def _slower(other: Candidate, best: Candidate) -> str:
    """Compare on the same machines, with equal price and interruptions: only steps differ."""
    step, first = other.time.step_seconds, best.time.step_seconds
    slower = step.p50 / first.p50 - 1
    if abs(slower) < EQUAL:
        return "as fast as the first"
    said = f"{_by(slower, 'slower', 'faster')} a step, {_error(other, slower)}"
    if slower < 0:
        return f"{said}more to set up"
    part = max(other.time.parts, key=lambda name: _more(name, other, best))
    share, before = other.time.parts[part] / step.p50, best.time.parts.get(part, 0) / first.p50
    if part == "compute" and other.setting.recompute != best.setting.recompute:
        return f"{said}recompute {other.setting.recompute}, {best.setting.recompute} in the first"
    return f"{said}{share:.0%} of it is {part}, {before:.0%} in the first"


def _error(other: Candidate, slower: float) -> str:
    """Return a remark if the difference is smaller than the step's uncertainty."""
    step = other.time.step_seconds
    error = (step.p90 - step.p10) / 2 / step.p50
    return f"too close to say at ±{error:.0%}: " if abs(slower) < error else ""


def _more(part: str, other: Candidate, best: Candidate) -> float:
    """Return the seconds that ``other`` spends more on a part; both have the same global batch."""
    return other.time.parts[part] - best.time.parts.get(part, 0.0)


def _dearer(other: Candidate, best: Candidate) -> str:
    """Compare on other machines, where cost and time differ."""
    cost = other.usd.p50 / best.usd.p50 - 1
    later = other.hours.p50 / best.hours.p50 - 1
    said = f"{_by(cost, 'dearer', 'cheaper')}, {_by(later, 'later', 'sooner')}"
    if _overlap(other.usd, best.usd) and abs(cost) < TENTH:
        said += "; their costs are too close to say"
    return f"{said}: MFU {other.time.mfu:.0%}, {best.time.mfu:.0%} in the first"


def _overlap(one: Spread, other: Spread) -> bool:
    return one.p10 <= other.p90 and other.p10 <= one.p90


def _by(share: float, more: str, less: str) -> str:
    """Return ``4 % slower``; above twice, a factor."""
    word = more if share >= 0 else less
    if share > 1:
        return f"{1 + share:.1f} × as {'dear' if more == 'dearer' else 'long'}"
    text = f"{abs(share):.1%}" if abs(share) < TENTH else f"{abs(share):.0%}"
    return f"{text} {word}"


def fills(needs: Memory) -> str:
    """Return the peak and its largest category: ``92 of 79 GiB, of which activations 40``."""
    largest = max(needs.categories, key=lambda name: needs.categories[name].p50)
    share = needs.categories[largest].p50
    return (
        f"{figure(needs.peak.p50)} of {needs.usable_gib:.0f} GiB, of which {largest} "
        f"{figure(share)}"
    )


PLAIN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("DDP, every GPU a copy", {"shard": "none"}),
    ("FSDP alone, nothing recomputed", {"shard": "full", "recompute": "none"}),
    ("FSDP alone, all recomputed", {"shard": "full", "recompute": "full"}),
)
"""The layouts that people usually try first."""

_ALONE = {"tensor": 1, "pipeline": 1, "interleave": 1, "context": 1, "shard_degree": 0}


def simpler(
    best: Candidate,
    ranked: Sequence[Candidate],
    question: Question,
    shown: Sequence[Candidate] = (),
) -> Iterator[str]:
    """Iterate over the usual first layouts, on the best one's machines, with what they lose.

    Args:
        shown: candidates that are shown anyway.
    """
    if best.setting.gpus == 1:  # no other rank to share with
        return
    for name, fields in PLAIN:
        layout = {**_ALONE, **fields}
        if all(getattr(best.setting, field) == value for field, value in layout.items()):
            continue
        there = (one for one in ranked if one.place == best.place and _is(one.setting, layout))
        one = next(there, None)
        if one is not None and one not in shown:
            yield f"{name}: {why_not(one, best, question)}"
        elif one is None and (short := _lacks(best, layout, question)):
            yield f"{name}: {short}"


def _is(setting: Setting, layout: Mapping[str, Any]) -> bool:
    return all(getattr(setting, field) == value for field, value in layout.items())


def _lacks(best: Candidate, layout: Mapping[str, Any], question: Question) -> str | None:
    """Return what a layout lacks with the smallest micro-batch; None if it is not memory."""
    least = {"micro_batch": 1, "sequence_parallel": False, "recompute": "full"}
    setting = best.setting.model_copy(update={**least, **layout})
    needs = question.ask(setting)
    does = {"no": "does not fit", "unsure": "may not fit"}.get(needs.fits)
    return f"{does}: {fills(needs)}" if does else None


def dollars(usd: float) -> str:
    """Return ``$1.23 M``, ``$340 k``, ``$12.50``."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if usd >= size:
            return f"${figure(usd / size)}{letter}"
    return f"${usd:.2f}"


SPANS = (
    ("days", 24.0, 48.0),
    ("hours", 1.0, 2.0),
    ("minutes", 1 / 60, 1 / 30),
    ("seconds", 1 / 3600, 0.0),
)
"""Unit, its hours, and the number of hours from which it is used."""


def span(hours: float) -> tuple[str, float]:
    """Return the unit in which this many hours are shown, and the unit's hours."""
    return next((unit, size) for unit, size, least in SPANS if hours >= least)


def lasting(hours: float) -> str:
    """Return ``18.2 days``, ``5 hours``."""
    unit, size = span(hours)
    return f"{figure(hours / size)} {unit}"
