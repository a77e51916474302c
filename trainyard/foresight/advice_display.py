"""Show advice on a terminal: memory, time and cost with intervals, and why each layout is not the
first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from math import isfinite, isinf
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from trainyard.foresight.advice import Advice, Candidate, select_layouts
from trainyard.foresight.interval import Spread
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Question
from trainyard.foresight.setting import Setting

WORDS = 3
"""Number of columns that contain words; the columns after them contain figures."""
TENTH = 0.1
EQUAL = 0.01
"""Steps whose times differ by a smaller share count as equally fast."""


def render_advice(advice: Advice) -> Group:
    """Return the complete advice, from the question to the reasons."""
    parts: list[Text | Table] = [*map(Text, _describe_question(advice)), Text()]
    if best := select_layouts(advice):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        table.add_column("")
        for number, name in enumerate(list_headings(best[0])):
            table.add_column(name, justify="left" if number < WORDS else "right", overflow="fold")
        for number, candidate in enumerate(best, 1):
            row = (str(number), *format_cells(candidate, best[0]))
            table.add_row(*row, style="bold" if number == 1 else "")
        parts += [table, Text(), Text(f"1  {format_run(best[0])}")]
        for number, other in enumerate(best[1:], 2):
            parts.append(Text(f"{number}  {explain_rank(other, best[0], advice.question)}"))
    else:
        parts += _explain_no_fit(advice)
    if advice.question.learned:
        parts += [Text(), Text(advice.question.learned, "dim")]
    return Group(*parts)


def _describe_question(advice: Advice) -> Iterator[str]:
    """Iterate over the lines above the table: the question, the layouts, and the aim."""
    question, layout_count = advice.question, advice.count
    batch = question.global_batch * question.model.sequence
    yield (
        f"{format_count(question.parameters)} parameters on {format_count(question.tokens)} "
        "tokens: "
        f"{question.steps:,} steps of {question.global_batch:,} × {question.model.sequence:,} "
        f"({format_count(batch)} tokens)"
    )
    types = ", ".join(offer.name for offer in question.offers)
    yield (
        f"{layout_count.layouts:,} layouts on up to {question.max_nodes} × {types}; "
        f"{layout_count.fit:,} fit. {format_aim(question)}"
    )
    if advice.ranking and (miss := explain_missed_bound(advice.ranking[0], question)):
        yield f"None does: the first {miss}. The fastest is listed first."


def format_aim(question: Question) -> str:
    """Return a sentence that says how the layouts are ranked."""
    if question.deadline is not None:
        bounds = f"that meet {format_duration(question.deadline)}"
        bounds += f" and {format_usd(question.budget)}" if question.budget is not None else ""
        return f"First the cheapest of those {bounds} at p90."
    if question.budget is not None:
        return f"First the fastest of those that meet {format_usd(question.budget)} at p90."
    return "Neither --deadline nor --budget: first the smallest product of time and cost."


def list_headings(first: Candidate) -> tuple[str, ...]:
    """Return the headings of the table of candidates; ``first`` determines the unit of time."""
    unit, _ = choose_time_unit(first.hours.p50)
    memory, words = "GiB (p10–p90)", ("machines", "layout", "batch")
    return (*words, memory, "step s", f"{unit} (p10–p90)", "USD (p10–p90)")


def format_cells(candidate: Candidate, first: Candidate) -> tuple[str, ...]:
    """Return the row of a candidate in the table that :func:`list_headings` describes."""
    it = candidate.setting
    _, unit = choose_time_unit(first.hours.p50)
    mark = "~" if candidate.offer.is_estimated else ""
    peak = candidate.memory.peak
    low, middle, high = (f"{g:.{0 if g > 10 else 1}f}" for g in (peak.p10, peak.p50, peak.p90))
    memory_text = f"{middle} ({low}–{high}) of {candidate.memory.usable_gib:.0f}"
    return (
        f"{candidate.nodes} × {candidate.offer.name.removeprefix('ml.')}",
        format_layout(it) + ("" if it.recompute == "none" else f", recompute {it.recompute}"),
        f"{it.micro_batch} × {it.accumulation}",
        memory_text + ("" if candidate.memory.fits == "yes" else "?"),
        format_number(candidate.time.step_seconds.p50),
        _format_range(candidate.hours.scale(1 / unit)),
        mark + _format_cost(candidate.usd),
    )


def format_time_and_cost(candidate: Candidate) -> str:
    """Return time and cost, such as ``18 (16–20) days, $3.4 M (3.0–3.7)``."""
    unit, size = choose_time_unit(candidate.hours.p50)
    return f"{_format_range(candidate.hours.scale(1 / size))} {unit}, {_format_cost(candidate.usd)}"


NAMES = {"none": "DDP", "optimizer": "ZeRO-1", "gradients": "ZeRO-2", "full": "FSDP"}
"""Usual names for the values of ``Setting.shard``. FSDP that does not reshard after the forward
pass is ZeRO-2 for memory and traffic."""


def format_layout(it: Setting) -> str:
    """Return a layout as text, such as ``ZeRO-2/64 TP8 PP2×4 CP2``.

    The parts are what is sharded over how many ranks, and the degrees of tensor, pipeline (times
    interleaving) and context parallelism. Degrees of 1 are left out.
    """
    degree = it.sharded_over if it.shard != "none" else it.data_parallel
    words = [f"{NAMES[it.shard]}/{degree}" if degree > 1 else "one GPU" if it.gpus == 1 else ""]
    chunks = f"×{it.interleave}" if it.interleave > 1 else ""
    words += [f"TP{it.tensor}"] if it.tensor > 1 else []
    words += [f"PP{it.pipeline}{chunks}"] if it.pipeline > 1 else []
    words += [f"CP{it.context}"] if it.context > 1 else []
    words += [it.precision] if it.precision != "bf16" else []
    return " ".join(filter(None, words))


def format_run(candidate: Candidate) -> str:
    """Return a sentence about the interruptions and the saves of the training run."""
    stops, every = candidate.run.interruptions, format_duration(candidate.run.save_interval / 3600)
    return (
        f"the run: {candidate.run.useful:.0%} of the time useful; {stops.p50:,.1f} "
        f"({stops.p10:,.1f}–{stops.p90:,.1f}) interruptions, a save every {every}"
    )


def _explain_no_fit(advice: Advice) -> Iterator[Text]:
    """Iterate over the lines that replace the table if no layout fits."""
    yield Text("No layout fits.", "bold red")
    for line in advice.remedies:
        yield Text(f"A layout would fit with {line}", "bold")


def explain_rank(other: Candidate, best: Candidate, question: Question) -> str:
    """Return why ``other`` is ranked below ``best``, which is the first."""
    if other.memory.fits != "yes":
        return f"may not fit: {format_peak(other.memory)}"
    bound = explain_missed_bound(other, question)
    if bound and not explain_missed_bound(best, question):
        return bound
    if other.machines == best.machines:
        return _compare_speed(other, best)
    cost = other.usd.p50 / best.usd.p50 - 1
    later = other.hours.p50 / best.hours.p50 - 1
    text = (
        f"{_format_difference(cost, 'dearer', 'cheaper')}, "
        f"{_format_difference(later, 'later', 'sooner')}"
    )
    overlap = other.usd.p10 <= best.usd.p90 and best.usd.p10 <= other.usd.p90
    if overlap and abs(cost) < TENTH:
        text += "; their costs are too close to say"
    return f"{text}: MFU {other.time.mfu:.0%}, {best.time.mfu:.0%} in the first"


def explain_missed_bound(other: Candidate, question: Question) -> str | None:
    """Return the bound that a candidate exceeds at p90, and by how much; None if it meets both."""
    if question.deadline is not None and other.hours.p90 > question.deadline:
        late, deadline = format_duration(other.hours.p90), format_duration(question.deadline)
        return f"misses the deadline: {late} at p90, for {deadline}"
    if question.budget is not None and other.usd.p90 > question.budget:
        return (
            f"over the budget: {format_usd(other.usd.p90)} at p90, for "
            f"{format_usd(question.budget)}"
        )
    return None


def _compare_speed(other: Candidate, best: Candidate) -> str:
    """Return how the step times of two layouts on the same machines differ, and why."""
    step, first = other.time.step_seconds, best.time.step_seconds
    slower = step.p50 / first.p50 - 1
    if abs(slower) < EQUAL:
        return "as fast as the first"
    error = (step.p90 - step.p10) / 2 / step.p50
    close = f"too close to say at ±{error:.0%}: " if abs(slower) < error else ""
    text = f"{_format_difference(slower, 'slower', 'faster')} a step, {close}"
    if slower < 0:
        return f"{text}more to set up"
    before = best.time.parts
    part = max(other.time.parts, key=lambda name: other.time.parts[name] - before.get(name, 0.0))
    if part == "compute" and other.setting.recompute != best.setting.recompute:
        return f"{text}recompute {other.setting.recompute}, {best.setting.recompute} in the first"
    share, earlier = other.time.parts[part] / step.p50, before.get(part, 0.0) / first.p50
    return f"{text}{share:.0%} of it is {part}, {earlier:.0%} in the first"


def _format_difference(share: float, more: str, less: str) -> str:
    """Return text such as ``4 % slower``; if the share is above 1, a factor such as ``2.5 ×``."""
    if share > 1:
        return f"{1 + share:.1f} × as {'dear' if more == 'dearer' else 'long'}"
    text = f"{abs(share):.1%}" if abs(share) < TENTH else f"{abs(share):.0%}"
    return f"{text} {more if share >= 0 else less}"


def format_peak(needs: Memory) -> str:
    """Return the peak and its largest part, as ``92 of 79 GiB, of which activations 40``."""
    largest = max(needs.categories, key=lambda name: needs.categories[name].p50)
    share = needs.categories[largest].p50
    return (
        f"{format_number(needs.peak.p50)} of {needs.usable_gib:.0f} GiB, of which {largest} "
        f"{format_number(share)}"
    )


def _format_range(spread: Spread) -> str:
    return f"{format_number(spread.p50)} ({format_number(spread.p10)}–{format_number(spread.p90)})"


def _format_cost(spread: Spread) -> str:
    """Return a cost, such as ``$3.38 M (3.04–3.72)``."""
    size, letter = _choose_usd_unit(spread.p50)
    low, high = format_number(spread.p10 / size), format_number(spread.p90 / size)
    return f"${format_number(spread.p50 / size)}{letter} ({low}–{high})"


def format_usd(usd: float) -> str:
    """Return USD as text, such as ``$1.23 M``, ``$340 k`` or ``$12.50``."""
    size, letter = _choose_usd_unit(usd)
    return f"${format_number(usd / size)}{letter}" if letter else f"${usd:.2f}"


def _choose_usd_unit(usd: float) -> tuple[float, str]:
    """Return the unit for an amount in USD, as (divisor, suffix)."""
    return (1e6, " M") if usd >= 1e6 else (1e3, " k") if usd >= 1e3 else (1.0, "")


def format_number(value: float) -> str:
    """Return a number as text with three digits and no exponent; ∞ for infinity."""
    if isinf(value):
        return "∞"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_count(number: float) -> str:
    """Return a number as text, such as ``1.4 T``, ``300 B`` or ``4 M``."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"


SPANS = (
    ("days", 24.0, 48.0),
    ("hours", 1.0, 2.0),
    ("minutes", 1 / 60, 1 / 30),
    ("seconds", 1 / 3600, 0.0),
)
"""Units of time: (unit, its length in hours, fewest hours that are shown in it)."""


def choose_time_unit(hours: float) -> tuple[str, float]:
    """Return the unit in which this many hours are shown, and the unit's hours."""
    return next((unit, size) for unit, size, minimum in SPANS if hours >= minimum)


def format_duration(hours: float) -> str:
    """Return a duration as text, such as ``18.2 days`` or ``5 hours``."""
    unit, size = choose_time_unit(hours)
    return f"{format_number(hours / size)} {unit}"


# Advice as JSON; times are in seconds and hours, sizes in GiB.

RANK_LIMIT = 20
"""Maximum number of layouts in the output; the advice has compared all of them."""


def build_advice_json(advice: Advice) -> dict[str, Any]:
    """Return advice as a JSON object."""
    question, count, best = advice.question, advice.count, select_layouts(advice)
    others = [candidate for candidate in advice.ranking[:RANK_LIMIT] if candidate not in best]
    return _convert_to_json(
        {
            "question": _format_question(question),
            "layouts": {
                "looked_at": count.layouts,
                "fit": count.fit,
                "refused": count.refusal_count,
            },
            "advised": [_build_layout_json(candidate, best[0], question) for candidate in best],
            "ranked": [_build_layout_json(candidate, best[0], question) for candidate in others],
            "remedies": advice.remedies,
        }
    )


def _format_question(question: Question) -> dict[str, Any]:
    return {
        "parameters": question.parameters,
        "tokens": question.tokens,
        "global_batch": question.global_batch,
        "sequence": question.model.sequence,
        "steps": question.steps,
        "deadline_hours": question.deadline,
        "budget_usd": question.budget,
        "instances": question.offers,
        "max_nodes": question.max_nodes,
        "how": question.how,
        "region": question.region,
        "learned": question.learned,
    }


def _build_layout_json(candidate: Candidate, best: Candidate, question: Question) -> dict[str, Any]:
    return {
        "instance_type": candidate.offer.name,
        "instances": candidate.nodes,
        "hours": candidate.hours,
        "usd": candidate.usd,
        "price_estimated": candidate.offer.is_estimated,
        "setting": candidate.setting.model_dump(exclude_defaults=True),  # as in advise --rows
        "memory_gib": _build_memory_json(candidate.memory),
        "step_seconds": candidate.time.step_seconds,
        "parts": candidate.time.parts,
        "tokens_per_second_per_gpu": candidate.time.tokens_per_second_per_gpu,
        "mfu": candidate.time.mfu,
        "run": {
            "interruptions": candidate.run.interruptions,
            "useful": candidate.run.useful,
            "save_every_seconds": candidate.run.save_interval,
            "save_stall_seconds": candidate.run.save_stall,
        },
        "why_not": None if candidate is best else explain_rank(candidate, best, question),
    }


def _build_memory_json(memory: Memory) -> dict[str, Any]:
    return {
        "peak": memory.peak,
        "usable": memory.usable_gib,
        "fits": memory.fits,
        "when": memory.when,
        "stage": memory.stage,
        "categories": memory.categories,
    }


def _convert_to_json(value: Any) -> Any:
    """Return a value as plain JSON types; infinity becomes null, because JSON cannot express it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {name: _convert_to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_convert_to_json(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
