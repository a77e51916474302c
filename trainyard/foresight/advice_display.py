"""Advice on a terminal: one screen, each figure with its interval."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from trainyard.foresight.advice import Advice, Candidate, shown
from trainyard.foresight.interrupted_run import Run
from trainyard.foresight.interval import Spread
from trainyard.foresight.losing_reasons import (
    dollars,
    fills,
    lasting,
    misses,
    simpler,
    span,
    why_not,
)
from trainyard.foresight.question import Question
from trainyard.foresight.rules_of_thumb import count, figure, rules_of
from trainyard.foresight.setting import Setting

WHEN = {
    "forward": "forward pass",
    "backward": "backward pass",
    "step": "optimizer step",
    "save": "save",
}
HOUR = 3600.0
WORDS = 4
"""Columns of words; all others hold figures."""
FRONTIER = 6
"""Points of the frontier that fit on a line."""


def picture(advice: Advice) -> Group:
    """Return the whole answer, from the question to the reasons."""
    parts: list[Text | Table] = [*map(Text, _asked(advice))]
    best = shown(advice)
    if best:
        parts += [Text(), _table(best), Text()]
        parts += _grounds(advice, best)
    else:
        parts += [Text(), *_nothing(advice)]
    parts += [
        Text(),
        *(Text(line, "dim") for line in (*_notes(advice), *rules_of(advice.question))),
    ]
    return Group(*parts)


def _asked(advice: Advice) -> Iterator[str]:
    question, looked = advice.question, advice.count
    batch = question.global_batch * question.model.sequence
    yield (
        f"{count(question.parameters)} parameters on {count(question.tokens)} tokens: "
        f"{question.steps:,} steps of {question.global_batch:,} × {question.model.sequence:,} "
        f"({count(batch)} tokens)"
    )
    types = ", ".join(offer.name for offer in question.offers)
    yield (
        f"{looked.layouts:,} layouts on up to {question.max_nodes} × {types}; {looked.fit:,} fit. "
        f"{aim(question)}"
    )
    if advice.ranked and (missed := misses(advice.ranked[0], question)):
        yield f"None does: the first {missed}. The fastest of all is first."


def aim(question: Question) -> str:
    """Return a sentence that says how the layouts are ranked."""
    if question.deadline is not None:
        within = f"that keep {lasting(question.deadline)}"
        within += f" and {dollars(question.budget)}" if question.budget is not None else ""
        return f"First the cheapest of those {within} at p90."
    if question.budget is not None:
        return f"First the fastest of those that keep {dollars(question.budget)} at p90."
    return "Neither --deadline nor --budget: first the smallest product of time and cost."


def _table(best: Sequence[Candidate]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("")
    for number, name in enumerate(heads(best[0])):
        table.add_column(name, justify="left" if number < WORDS else "right", no_wrap=True)
    for number, one in enumerate(best, 1):
        style = "bold" if number == 1 else ""
        table.add_row(str(number), *cells(one, best[0]), style=style)
    return table


def heads(first: Candidate) -> tuple[str, ...]:
    """Return the heads of a table of candidates; the first candidate gives the unit of time."""
    unit, _ = span(first.hours.p50)
    words = ("machines", "layout", "batch", "recompute", "GiB", "step s", "MFU")
    return (*words, f"{unit} (p10–p90)", "USD (p10–p90)")


def cells(one: Candidate, first: Candidate) -> tuple[str, ...]:
    """Return a candidate's row of that table."""
    it, peak = one.setting, one.memory.peak.p50
    _, unit = span(first.hours.p50)
    there = f"{peak:.{0 if peak > 2 else 1}f} of {one.memory.usable_gib:.0f}"
    mark = "~" if one.offer.estimated else ""
    return (
        f"{one.nodes} × {one.offer.name.removeprefix('ml.')}",
        layout(it),
        f"{it.micro_batch} × {it.accumulation}",
        it.recompute,
        there + ("" if one.memory.fits == "yes" else "?"),
        figure(one.time.step_seconds.p50),
        f"{one.time.mfu:.0%}",
        _range(one.hours.times(1 / unit)),
        mark + _money(one.usd),
    )


def days(one: Candidate) -> str:
    """Return time and cost, such as ``18 (16–20) days, $3.4 M (3.0–3.7)``."""
    unit, size = span(one.hours.p50)
    return f"{_range(one.hours.times(1 / size))} {unit}, {_money(one.usd)}"


NAMES = {"none": "DDP", "optimizer": "ZeRO-1", "gradients": "ZeRO-2", "full": "FSDP"}
"""Usual names for ranks that share nothing, the optimizer's state, gradients too, weights too;
FSDP that does not reshard after the forward pass is ZeRO-2 for memory and traffic."""


def layout(it: Setting) -> str:
    """Return ``ZeRO-2/64 TP8 PP2×4 CP2``: what is shared by how many ranks, and the degrees."""
    over = it.sharded_over if it.shard != "none" else it.data_parallel
    words = [f"{NAMES[it.shard]}/{over}" if over > 1 else "one GPU" if it.gpus == 1 else ""]
    words += [f"TP{it.tensor}"] if it.tensor > 1 else []
    words += [f"PP{it.pipeline}" + _chunks(it)] if it.pipeline > 1 else []
    words += [f"CP{it.context}"] if it.context > 1 else []
    words += [it.precision] if it.precision != "bf16" else []
    return " ".join(filter(None, words))


def _chunks(it: Setting) -> str:
    return f"×{it.interleave}" if it.interleave > 1 else ""


def _range(spread: Spread) -> str:
    return f"{figure(spread.p50)} ({figure(spread.p10)}–{figure(spread.p90)})"


def _money(spread: Spread) -> str:
    """Return a cost, such as ``$3.38 M (3.04–3.72)``."""
    size, letter = (
        (1e6, " M") if spread.p50 >= 1e6 else (1e3, " k") if spread.p50 >= 1e3 else (1, "")
    )
    low, high = figure(spread.p10 / size), figure(spread.p90 / size)
    return f"${figure(spread.p50 / size)}{letter} ({low}–{high})"


def _grounds(advice: Advice, best: Sequence[Candidate]) -> list[Text]:
    first, question = best[0], advice.question
    lines = [Text(f"1  {line}") for line in detail(first)]
    lines += [
        Text(f"{number}  {why_not(other, first, question)}")
        for number, other in enumerate(best[1:], 2)
    ]
    lines += [Text(f"–  {line}") for line in simpler(first, advice.ranked, question, best)]
    points = _thinned(advice.frontier)
    if len(points) > 1:
        lines += [
            Text(),
            Text("Sooner is dearer, nothing beats: " + "; ".join(map(_point, points))),
        ]
    return lines


def detail(one: Candidate) -> Iterator[str]:
    """Iterate over lines about a candidate's memory, its run and its step."""
    sizes = sorted(one.memory.categories.items(), key=lambda item: -item[1].p50)
    memory = ", ".join(
        f"{name} {figure(size.p50)}"
        for name, size in sizes
        if size.p50 >= one.memory.peak.p50 / 100
    )
    where = f" on stage {one.memory.stage}" if one.setting.pipeline > 1 else ""
    yield f"memory: {fills_range(one)}, at its peak in the {WHEN[one.memory.when]}{where}: {memory}"
    step = one.time.step_seconds.p50
    parts = sorted(one.time.parts.items(), key=lambda item: -item[1])
    yield _running(one.run)
    yield "the step: " + ", ".join(f"{n} {s / step:.0%}" for n, s in parts if s / step >= 0.005)


def _running(run: Run) -> str:
    stops, every = run.interruptions, lasting(run.save_interval / HOUR)
    return (
        f"the run: {run.useful:.0%} of the time useful; {stops.p50:,.1f} "
        f"({stops.p10:,.1f}–{stops.p90:,.1f}) interruptions, a save every {every}"
    )


def _notes(advice: Advice) -> Iterator[str]:
    if advice.question.learned:
        yield advice.question.learned


def fills_range(one: Candidate) -> str:
    """Return the peak with its interval, and the usable memory."""
    peak, there = one.memory.peak, one.memory.usable_gib
    return f"{figure(peak.p50)} GiB ({figure(peak.p10)}–{figure(peak.p90)}) of {there:.3g} usable"


def _thinned(points: Sequence[Candidate]) -> list[Candidate]:
    """Return a few points, with both ends, one for each count of machines."""
    if len(points) <= FRONTIER:
        return list(points)
    step = (len(points) - 1) / (FRONTIER - 1)
    return [points[round(number * step)] for number in range(FRONTIER)]


def _point(one: Candidate) -> str:
    return (
        f"{one.nodes} × {one.offer.name.removeprefix('ml.')} {lasting(one.hours.p50)} "
        f"{dollars(one.usd.p50)}"
    )


def _nothing(advice: Advice) -> Iterator[Text]:
    yield Text("No layout fits.", "bold red")
    if (near := advice.nearest) is not None:
        it = near.setting
        yield Text(
            f"The nearest: {near.nodes} × {near.offer.name}, {layout(it)}, micro-batch "
            f"{it.micro_batch}, recompute {it.recompute}: {fills(near.memory)}"
        )
    for line in advice.remedies:
        yield Text(f"It would with {line}", "bold")
