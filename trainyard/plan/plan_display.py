"""Display a plan in a terminal, or as plain text elsewhere.

"Seen" are times and costs of earlier executions, "foreseen" those of a prediction.
"""

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from trainyard.language.step_types import get_step_type
from trainyard.plan.cache_prediction import Outcome, is_key_changed, parse_code_name
from trainyard.plan.definition_diff import CODE, Change, Diff, StepChange, format_path
from trainyard.plan.pipeline_plan import Drift, Plan
from trainyard.plan.run_cost import Cost, Foreseen, Range
from trainyard.runs.run_display import format_duration
from trainyard.terminal import console
from trainyard.validate.all_checks import format_noun_count

COLOURS = {"+": "green", "-": "red", "~": "yellow", "!": "bold magenta"}
LONGEST = 60  # characters of a value
WIDE = 30  # characters of old and new together, before their common part is left out
PREFIX_MIN = 8  # a longer common beginning of old and new is replaced by …
DISPLAYED_FIELDS = re.compile(
    r"(InstanceType|InstanceCount|DependsOn|(ProcessingInputs|InputDataConfig|PropertyFiles)\[.*)"
)
"""Match the labels of the fields of a new step that are shown."""
_HASH = re.compile(r"\b[0-9a-f]{32,64}\b")
Cell = tuple[str, str]  # text, style


def render_plan(plan: Plan, width: int | None = None) -> list[Text]:
    """Return the lines of a plan.

    Args:
        plan: the plan.
        width: columns of the terminal; if the table is wider, its reasons are put below it. None
            allows any width.
    """
    lines = [
        Text(f"pipeline {plan.target.name} in {plan.region}: {format_headline(plan)}", "bold"),
        Text(),
    ]
    lines += [*_format_drift(plan.drift)]
    if plan.current:
        lines += [*format_differences(plan.diff)]
    lines += [*_format_next_run(plan, width), Text()]
    return lines + [*_format_grounds(plan)]


def print_plan(plan: Plan) -> None:
    """Print the plan, within the width of the terminal if the output is one."""
    for line in render_plan(plan, console.width if console.is_terminal else None):
        console.print(line, highlight=False)


def format_headline(plan: Plan) -> str:
    """Return a summary of the plan, such as ``2 steps changed, 1 parameter changed``."""
    if plan.current is None:
        return f"is new, with {format_noun_count(len(plan.outcomes), 'step')}"
    if not plan.diff:
        return "no change"
    counts = {sign: [s for s in plan.diff.steps if s.sign == sign] for sign in "+~-"}
    words = {"+": "added", "~": "changed", "-": "removed"}
    phrases = [
        f"{format_noun_count(len(counts[s]), 'step')} {words[s]}" for s in words if counts[s]
    ]
    for noun, changes in (("parameter", plan.diff.parameters), ("setting", plan.diff.pipeline)):
        phrases += [f"{format_noun_count(len(changes), noun)} changed"] if changes else []
    return ", ".join(phrases)


# what changes


def format_differences(diff: Diff) -> Iterator[Text]:
    """Iterate over lines about changed settings, parameters, then steps.

    Changed steps with equal changes are listed together, in one block.
    """
    for title, changes in (("pipeline", diff.pipeline), ("parameters", diff.parameters)):
        if changes:
            yield _assemble_line(("~", COLOURS["~"]), (f" {title}", "bold"))
            yield from _format_changes(changes)
            yield Text()
    # An added or removed step has a block of its own; changed steps share one if their changes are
    # equal.
    groups: dict[tuple, tuple[list[str], StepChange]] = {}
    for step in diff.steps:
        group_key = (step.sign, step.changes) if step.sign == "~" else (step.name,)
        groups.setdefault(group_key, ([], step))[0].append(step.name)
    for names, step in groups.values():
        kind = "" if step.sign == "~" else f"  {step.type}"
        yield _assemble_line(
            (step.sign, COLOURS[step.sign]), (f" {', '.join(names)}", "bold"), (kind, "dim")
        )
        # Of an added step only some fields are shown, of a removed one only its name.
        yield from _format_changes(
            change
            for change in step.changes
            if step.sign == "~"
            or (step.sign == "+" and DISPLAYED_FIELDS.fullmatch(format_path(change.path)))
        )
        yield Text()


def _format_changes(changes: Iterable[Change]) -> Iterator[Text]:
    """Iterate over lines of sign, field, ``old → new`` and note, aligned in columns."""
    rows = []
    for change in changes:
        is_code = CODE.fullmatch(change.new or change.old or "")
        name = parse_code_name(change.path) if is_code else format_path(change.path)
        rows.append((change, name, *_shorten_values(change)))
    names = max((cell_len(row[1]) for row in rows), default=0)
    widths = [cell_len(_format_change(old, new)) for change, _, old, new in rows if change.note]
    for change, name, old, new in rows:
        change_text = _format_change(old, new)
        line = _assemble_line(
            (f"    {change.sign} ", COLOURS[change.sign]),
            (name + " " * (names - cell_len(name)), ""),
            ("   ", ""),
            (change_text, ""),
        )
        if change.note:
            line.append(" " * (max(widths) - cell_len(change_text) + 3) + change.note, "dim")
        yield line


def _format_change(old: str, new: str) -> str:
    return f"{old} → {new}" if old and new else old or new


def _shorten_values(change: Change) -> tuple[str, str]:
    """Return the old and the new value, shortened for one line; a long common beginning is cut."""
    old, new = change.old or "", change.new or ""
    if CODE.fullmatch(new or old):
        return _shorten_code(old), _shorten_code(new)
    if old and new and len(old) + len(new) > WIDE:
        shared_prefix = os.path.commonprefix((old, new))
        end = max(shared_prefix.rfind("/"), shared_prefix.rfind(" "))
        if end > PREFIX_MIN:
            old, new = f"…{old[end:]}", f"…{new[end:]}"
    return _shorten_value(old), _shorten_value(new)


def _shorten_code(value: str) -> str:
    """Return the first 8 digits of the hash in a URI of code; any other value shortened."""
    match = CODE.fullmatch(value)
    return match["hash"][:8] if match else _shorten_value(value)


def _shorten_value(value: str) -> str:
    """Return the value with its hashes shortened, and without its middle if it is long."""
    value = _HASH.sub(lambda match: match[0][:12], value)
    half = LONGEST // 2
    return value if len(value) <= LONGEST else f"{value[:half]} … {value[-half:]}"


def _format_drift(drift: Drift) -> Iterator[Text]:
    """Iterate over lines about changes of the deployed pipeline that no recorded upsert made."""
    if drift.kind == "none":
        return
    when = f"{drift.since:%Y-%m-%d %H:%M} UTC" if drift.since else ""
    messages = {
        "unknown": "drift: unknown, no upsert of this pipeline was recorded yet",
        "edited": f"drift: {drift.by} edited the pipeline at {when}; upserting undoes this:",
        "interrupted": f"an upsert by {drift.by} has been running since {when}, or was cut off: "
        "the deployed pipeline is not one of the recorded states",
    }
    style = "dim" if drift.kind == "unknown" else COLOURS["!"]
    yield _assemble_line(("! ", style), (messages[drift.kind], style))
    for line in format_differences(drift.diff):
        yield (
            _assemble_line(("  │ ", style)).append_text(line) if line.plain else Text("  │", style)
        )
    yield Text()


# Display of what the next execution does: a table with a row per step.


def _format_next_run(plan: Plan, width: int | None) -> Iterator[Text]:
    """Iterate over the lines of the table of steps; without its last column if it is too wide."""
    header = [
        (word, "dim") for word in ("next run", "", "machines", "seen", "", "at most", "", "why")
    ]
    rows = [header]
    for outcome, cost in zip(plan.outcomes, plan.costs, strict=True):
        rows.append(_build_row(outcome, cost, _explain_surprise(plan, outcome)))
    rows.append(_build_total_row(plan))
    lines = list(_format_table(rows, right=(3, 4, 5, 6)))
    if width is None or max(line.cell_len for line in lines) <= width:
        yield from lines
        return
    yield from _format_table([row[:-1] for row in rows], right=(3, 4, 5, 6))
    # The terminal is too narrow: the reasons, which are the last column, follow below the table.
    for row in rows[1:]:
        if row[-1][0]:
            yield _assemble_line((f"  {row[0][0]}: ", ""), row[-1])


def _build_total_row(plan: Plan) -> list[Cell]:
    """Return the table's last row: the totals of all steps."""
    total = plan.total
    run = [cost for cost in plan.costs if cost.usd_limit != 0]
    some = any(cost.estimated for cost in run)
    every = any(cost.estimated for cost in plan.costs)
    without = format_usd(total.usd_uncached, every)
    has_cached = any(outcome.answer == "cached" for outcome in plan.outcomes)
    return [
        ("in all", "bold"),
        ("", ""),
        ("", ""),
        (
            _mark_prediction(format_times(total.expected), any(cost.is_predicted for cost in run)),
            "",
        ),
        (format_cost(total.usd_expected, some), ""),
        (_format_time_limit(total.limit), ""),
        (format_usd(total.usd_limit, some), "bold"),
        (f"at most {without} without the cache" if has_cached else "", "dim"),
    ]


def _explain_surprise(plan: Plan, outcome: Outcome) -> str:
    """Return a remark if the step's outcome may be surprising; else an empty string.

    It is for a changed step that is still taken from the cache, and for a step that registers the
    same model again because all jobs are taken from the cache.
    """
    if outcome.type == "RegisterModel":
        jobs = [other for other in plan.outcomes if get_step_type(other.type).is_charged]
        is_repeat = jobs and all(job.answer == "cached" for job in jobs)
        return "registers the same model again: never cached" if is_repeat else ""
    if plan.current is None or outcome.step not in plan.diff.changed_steps:
        return ""
    is_in_key = is_key_changed(plan.current.state.document, plan.target.document, outcome.step)
    return ", which had these values" if is_in_key else "; what changed is not in its cache key"


def _build_row(outcome: Outcome, cost: Cost, remark: str) -> list[Cell]:
    """Return the table's row for a step; ``remark`` is appended to the reason."""
    if outcome.answer == "cached":
        cells = [cost.machines, "", "", "", "$0", outcome.why + remark]
        return [(outcome.step, ""), ("cached", "green"), *((cell, "dim") for cell in cells)]
    timing = outcome.when or "runs"
    if not get_step_type(outcome.type).is_charged:
        return [(outcome.step, ""), (timing, ""), *[("", "")] * 5, (remark, "dim")]
    machines = f"{cost.machines}{' spot' if cost.spot else ''}"
    no_price = f"; no price for {cost.unpriced}" if cost.unpriced else ""
    return [
        (outcome.step, ""),
        (timing, "yellow"),
        (machines, ""),
        (_mark_prediction(format_times(cost.expected_seconds), cost.is_predicted), ""),
        (format_cost(cost.usd_expected, cost.estimated), ""),
        (_format_time_limit(cost.limit), ""),
        (format_usd(cost.usd_limit, cost.estimated), ""),
        (f"{outcome.why}{no_price}", "yellow"),
    ]


def _format_time_limit(seconds: float | None) -> str:
    """Return a time limit as text, in whole minutes if possible; ``?`` if it is not known."""
    if seconds is None:
        return "?"
    if seconds == 0:
        return ""
    if seconds % 60 or seconds < 60:
        return format_duration(seconds)
    minutes = int(seconds) // 60
    if minutes % 60:
        return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 60} h"


def format_times(seconds: Range) -> str:
    """Return a range such as ``3 min 10 s – 4 min 00 s``; ``–`` if unknown, empty if zero."""
    if seconds.low is None or seconds.high is None:
        return "–"
    if seconds.high == 0:
        return ""
    low, high = format_duration(seconds.low), format_duration(seconds.high)
    return low if low == high else f"{low} – {high}"


def _mark_prediction(text: str, is_foreseen: bool) -> str:
    return f"foreseen {text}" if is_foreseen and text != "–" else text


def format_cost(usd: Range, is_estimate: bool) -> str:
    """Return a cost such as ``~$1.20 – $2.00``; empty if it is unknown or zero."""
    if usd.low is None or not usd.high:
        return ""
    # The mark "~" of a derived price is written once, before the range.
    low, high = format_usd(usd.low, is_estimate), format_usd(usd.high, False)
    return low if low.strip("~") == high else f"{low} – {high}"


def format_usd(usd: float | None, is_estimate: bool) -> str:
    """Return an amount in USD as text, in whole cents; ``?`` if it is not known.

    If ``is_estimate``, it begins with ``~``, because a price in it was derived.
    """
    if usd is None:
        return "?"
    if usd == 0:
        return "$0"
    if usd < 0.005:
        return "<$0.01"
    return f"{'~' if is_estimate else ''}${usd:,.2f}"


def _format_table(rows: Sequence[Sequence[Cell]], right: Sequence[int]) -> Iterator[Text]:
    """Iterate over the rows as lines with aligned columns; ``right`` are those aligned right."""
    widths = [max(cell_len(text) for text, _ in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text()
        for position, (text, style) in enumerate(row):
            gap = " " * (widths[position] - cell_len(text))
            line.append(gap + text if position in right else text + gap, style)
            line.append("  ")
        line.rstrip()
        yield line


def _format_grounds(plan: Plan) -> Iterator[Text]:
    """Iterate over the lines below the table: overwritten data, what training jobs start from,
    sources of the figures, remarks, and the budget.
    """
    for item in plan.overwritten:
        yield Text(f"! {item}", COLOURS["!"])
    for step, words in plan.begins.items():
        yield Text(f"{step} {words}", "bold")
    run_counts = [cost.runs_seen for cost in plan.costs if cost.seen.high]
    if run_counts:
        yield Text(
            f"seen: earlier runs of the step on the same machines (up to {max(run_counts)})", "dim"
        )
    yield from _format_foresight(plan)
    if any(cost.spot and cost.usd_limit for cost in plan.costs):
        yield Text(
            "spot: from a tenth of the on-demand price to all of it; at most: on demand", "dim"
        )
    for remark in plan.remarks:
        yield Text(remark, "dim")
    yield Text(_format_prices(plan), "dim")
    if plan.budget.text:
        style = "green" if plan.budget.holds else "bold red"
        yield Text(f"budget: {plan.budget.text}", style)


def _format_foresight(plan: Plan) -> Iterator[Text]:
    """Iterate over the predictions for the steps that run, or why there are none."""
    for outcome in plan.outcomes:
        prediction = plan.foresight.get(outcome.step)
        if prediction is None or outcome.answer == "cached":
            continue
        if not isinstance(prediction, Foreseen):
            yield Text(f"not foreseen: {outcome.step}: {prediction.why}", "dim")
            continue
        seconds = prediction.seconds
        around = f"{format_duration(seconds.p10)} – {format_duration(seconds.p90)}"
        summary = f"{outcome.step} {format_duration(seconds.p50)} (8 of 10 times {around})"
        yield Text(f"foreseen: {summary}: {prediction.grounds}", "dim")
        for remark in prediction.remarks:
            yield Text(f"foreseen: {outcome.step} {remark}", "dim")
        for warning in prediction.warnings:
            yield Text(f"! {outcome.step} {warning}", COLOURS["!"])


def _format_prices(plan: Plan) -> str:
    """Return a line with the region and date of the prices, or that there are none."""
    prices = plan.prices
    if prices.date is None:
        return f"prices: none for {prices.region} in trainyard/plan/prices.json"
    note = "; ~ includes derived prices" if any(c.estimated for c in plan.costs) else ""
    return f"prices: {prices.region}, {prices.date}, trainyard/plan/prices.json{note}"


def _assemble_line(*parts: Cell) -> Text:
    return Text.assemble(*parts)
