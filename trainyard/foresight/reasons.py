"""Why a layout lost: one sentence with the figures that decided."""

from collections.abc import Callable

from trainyard.foresight.advice import Candidate
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Question
from trainyard.foresight.setting import Setting
from trainyard.foresight.spread import Spread

TENTH = 0.1


def why_not(other: Candidate, best: Candidate, question: Question) -> str:
    """Why ``other`` stands below ``best``, which is ranked first."""
    if other.memory.fits != "yes":
        return f"may not fit: {fills(other.memory, other.setting)}"
    if bound := _misses(other, question):
        return bound
    if other.place == best.place:
        return _slower(other, best)
    return _dearer(other, best)


def _misses(other: Candidate, question: Question) -> str | None:
    if question.deadline is not None and other.hours.p90 > question.deadline:
        days, asked = other.hours.p90 / 24, question.deadline / 24
        return f"misses the deadline: {days:.3g} days at p90, for {asked:.3g}"
    if question.budget is not None and other.usd.p90 > question.budget:
        return f"over the budget: {dollars(other.usd.p90)} at p90, for {dollars(question.budget)}"
    return None


def _slower(other: Candidate, best: Candidate) -> str:
    """On the same machines, price and interruptions are the same: only the step differs."""
    step, first = other.time.step_seconds, best.time.step_seconds
    slower = step.p50 / first.p50 - 1
    error = (step.p90 - step.p10) / 2 / step.p50
    part = max(other.time.parts, key=lambda name: _more(name, other, best))
    share, before = other.time.parts[part] / step.p50, best.time.parts.get(part, 0) / first.p50
    where = f"{share:.0%} of the step is {part}"
    where += f", {before:.0%} in the first" if before > 0.005 else ""
    if abs(slower) < error:
        return f"{_by(slower, 'slower', 'faster')}, within the error of ±{error:.0%}: {where}"
    return f"{_by(slower, 'slower', 'faster')}: {where}"


def _more(part: str, other: Candidate, best: Candidate) -> float:
    """Seconds that ``other`` spends more on a part; both have the same global batch."""
    return other.time.parts[part] - best.time.parts.get(part, 0.0)


def _dearer(other: Candidate, best: Candidate) -> str:
    """On other machines, cost and time differ."""
    cost = other.usd.p50 / best.usd.p50 - 1
    later = other.hours.p50 / best.hours.p50 - 1
    said = f"{_by(cost, 'dearer', 'cheaper')}, {_by(later, 'later', 'sooner')}"
    if _overlap(other.usd, best.usd) and abs(cost) < TENTH:
        said += "; their costs are too close to say"
    return f"{said}: MFU {other.time.mfu:.0%}, {best.time.mfu:.0%} in the first"


def _overlap(one: Spread, other: Spread) -> bool:
    return one.p10 <= other.p90 and other.p10 <= one.p90


def _by(share: float, more: str, less: str) -> str:
    """``4 % slower``; more than twice as a factor."""
    word = more if share >= 0 else less
    if share > 1:
        return f"{1 + share:.1f} × as {'dear' if more == 'dearer' else 'long'}"
    text = f"{abs(share):.1%}" if abs(share) < TENTH else f"{abs(share):.0%}"
    return f"{text} {word}"


def fills(needs: Memory, setting: Setting) -> str:
    """``92 of 79 GiB, of which activations 40``: the peak, and its largest category."""
    largest = max(needs.categories, key=lambda name: needs.categories[name].p50)
    share = needs.categories[largest].p50
    there = setting.device.memory_gib
    return f"{needs.peak.p50:.0f} of {there:.0f} GiB, of which {largest} {share:.0f}"


def simpler(best: Candidate, ask: Callable[[Setting], Memory]) -> list[str]:
    """Of the layouts that one would try first on the best one's machines, those that do not fit,
    and by how much."""
    plain = {"tensor": 1, "pipeline": 1, "interleave": 1, "context": 1, "sequence_parallel": False}
    said = []
    for name, shard, recompute in (
        ("copies of the weights (DDP)", "none", "full"),
        ("all shared (FSDP), nothing recomputed", "full", "none"),
        ("all shared (FSDP), all recomputed", "full", "full"),
    ):
        layout = {**plain, "shard": shard, "shard_degree": 0, "recompute": recompute}
        setting = best.setting.model_copy(update={**layout, "micro_batch": 1})
        needs = ask(setting)
        if needs.fits != "yes":
            does = "does not fit" if needs.fits == "no" else "may not fit"
            said.append(f"{name}: {does}: {fills(needs, setting)}")
    return said


def dollars(usd: float) -> str:
    """``$1.2 M``, ``$340,000``, ``$12.50``."""
    if usd >= 1e6:
        return f"${usd / 1e6:.3g} M"
    return f"${usd:,.0f}" if usd >= 100 else f"${usd:.2f}"
