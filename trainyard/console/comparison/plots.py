"""Curves of one metric of all runs on one plot, and its best values beside the last."""

import math
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.charts import Series, line_chart
from trainyard.console.comparison.metrics import figure_of
from trainyard.console.comparison.sides import AT_ONCE, LONG, Side
from trainyard.console.comparison.works import Group, Work
from trainyard.console.curves.reading import Metrics, read
from trainyard.console.curves.samples import Sample, Samples
from trainyard.language.statuses import JOB_ENDED
from trainyard.runs.comparing.differences import order

FEW = 8
"""Runs of which a first metric is drawn without being asked for: each one's log is read for it."""
SIZE = (480, 240)
UNITS = ((600.0, 1.0, "seconds"), (36_000.0, 60.0, "minutes"), (math.inf, 3_600.0, "hours"))
"""Seconds up to which, how many of them a unit has, and its name."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of a training step, by run: its samples, None of a run without."""

    name: str
    """Step and metric: ``Train.loss``."""
    samples: tuple[Samples | None, ...]
    sources: tuple[str, ...]
    """Where each run's values are from, or why there are none; empty of a run without."""
    counters: tuple[str, ...]
    """What each run's steps count: ``step``, ``round``, …; empty where its log names none."""
    slow: tuple[tuple[str, ...], ...]
    """What is told of each run's expressions that took too long."""


def names(sides: Sequence[Side]) -> list[str]:
    """Every metric of which a run may have a curve, as ``<step>.<metric>``."""
    return order([_of_side(side) for side in sides])


def _of_side(side: Side, *, is_measured: bool = False) -> list[str]:
    """Its metrics; ``is_measured``: those alone of which the job's description has a value."""
    found = []
    for step, work in side.works.items():
        declared = work.job.get("AlgorithmSpecification", {}).get("MetricDefinitions") or ()
        last = [one.get("MetricName") for one in work.job.get("FinalMetricDataList") or ()]
        metrics = last if is_measured else [*(one.get("Name") for one in declared), *last]
        found += [f"{step}.{metric}" for metric in dict.fromkeys(metrics) if _job(work) and metric]
    return found


def wanted(sides: Sequence[Side], chosen: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics that are drawn: those that were chosen, or of few runs a loss, or the first, of
    those that the service knows a value of, if there are any."""
    there = names(sides)
    if chosen or len(sides) > FEW:
        return tuple(name for name in chosen if name in there)
    there = order([_of_side(side, is_measured=True) for side in sides]) or there
    first = [name for name in there if "loss" in name.lower()] or there
    return tuple(first[:1])


def curves(here: Account, sides: Sequence[Side], drawn: Sequence[str]) -> list[Curve]:
    """What is known of these metrics now; of a long log a part more each time."""
    known = _read(here, sides, drawn)
    return [_curve(name, [_metrics_of(side, name, known) for side in sides]) for name in drawn]


def _curve(name: str, metrics: Sequence[Metrics | None]) -> Curve:
    samples = [one.samples.get(name.partition(".")[2]) if one else None for one in metrics]
    return Curve(
        name,
        samples=tuple(one if one and one.count else None for one in samples),
        sources=tuple(one.source if one else "" for one in metrics),
        counters=tuple(one.counter if one else "" for one in metrics),
        slow=tuple(tuple(one.slow) if one else () for one in metrics),
    )


def stamp(here: Account, sides: Sequence[Side], chosen: tuple[str, ...]) -> Hashable:
    """Differs when more is known of the metrics that are drawn: a long log is read in parts."""
    known = _read(here, sides, wanted(sides, chosen))
    return tuple(metrics.version for metrics in known.values())


NOTES = {
    "log": "",
    "CloudWatch": "CloudWatch's means over a minute or more, the log is too long or gone",
    "last values": "its last value alone, neither the log nor CloudWatch has the others",
}


def notes(found: Sequence[Curve]) -> list[str]:
    """What is to be said of the runs' values, and of what is not looked for any more."""
    said = [
        (run, note)
        for curve in found
        for run, source in enumerate(curve.sources)
        for note in (NOTES.get(source, source), *curve.slow[run])
        if note
    ]
    none = [f"No run has a value of {one.name}." for one in found if not any(one.samples)]
    return list(dict.fromkeys([*none, *(f"Run {run + 1}: {note}." for run, note in said)]))


def best(found: Sequence[Curve], count: int) -> list[Group]:
    """For each run the lowest and the highest value of each curve."""
    groups: list[Group] = [{} for _ in range(count)]
    for curve in found:
        for group, samples in zip(groups, curve.samples, strict=True):
            for word in ("lowest", "highest"):
                sample: Sample | None = getattr(samples, word) if samples else None
                if sample:
                    group[f"{curve.name} ({word})"] = figure_of(sample.value)
    return groups


def plot(number: int, curve: Curve, axis: str) -> Markup:
    """All runs' curves; ``axis``: ``step``, ``time`` or ``since the start``.

    Where a run's log names no step, ``step`` counts its values. The axis says what all runs count,
    such as rounds, and ``step`` where they count different things.
    """
    series: list[Series] = [
        (f"run {run + 1}", [_point(samples, i, one, axis) for i, one in samples.numbered])
        for run, samples in enumerate(curve.samples)
        if samples
    ]
    x = _counted(curve)
    if axis != "step":
        x, series = _in_units(
            series, "the first value" if axis == "time" else "each run's first value"
        )
    return line_chart(f"curve-{number}", curve.name, series, x=x, size=SIZE)


def _counted(curve: Curve) -> str:
    drawn = zip(curve.samples, curve.counters, strict=True)
    kinds = {counter for samples, counter in drawn if samples}
    return (kinds.pop() or "value") if len(kinds) == 1 else "step"


def _point(samples: Samples, i: int, one: Sample, axis: str) -> tuple[float, float]:
    if axis == "step":
        return (float(i) if one.step is None else one.step), one.value
    if axis == "time":
        return one.at / 1000, one.value
    begin = samples.first.at if samples.first else one.at
    return (one.at - begin) / 1000, one.value


def _in_units(series: Sequence[Series], since: str) -> tuple[str, list[Series]]:
    """The name of what is across, and the curves since the first of them began."""
    across = [x for _, points in series for x, _ in points]
    first, last = min(across, default=0.0), max(across, default=0.0)
    unit, name = next((unit, name) for most, unit, name in UNITS if last - first <= most)
    return f"{name} since {since}", [
        (run, [((x - first) / unit, y) for x, y in points]) for run, points in series
    ]


def _job(work: Work) -> str:
    """The name of its training job; empty without one."""
    found = work.step.job if work.step else None
    return found[1] if found and found[0] == "TrainingJob" else ""


def _read(here: Account, sides: Sequence[Side], drawn: Sequence[str]) -> Mapping[str, Metrics]:
    """Name of a training job → its metrics; of those that what is drawn is of."""
    steps = {name.partition(".")[0] for name in drawn}
    works = [work for side in sides for step, work in side.works.items() if step in steps]
    jobs = {name: work for work in works if (name := _job(work)) and work.job}
    if not jobs:
        return {}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(lambda name: _metrics(here, name, jobs[name]), jobs)
        return dict(zip(jobs, found, strict=True))


def _metrics(here: Account, job: str, work: Work) -> Metrics:
    is_ended = work.job.get("TrainingJobStatus") in JOB_ENDED

    def good(metrics: Metrics) -> float:
        is_all = is_ended and metrics.until is None and metrics.version
        return LONG if is_all else here.seconds

    return here.lately(("compare: metrics", job), lambda: _known(here, job), good)


def _known(here: Account, job: str) -> Metrics:
    try:
        return read(here, job)
    except ServiceError as error:
        return Metrics(source=str(error))


def _metrics_of(side: Side, name: str, known: Mapping[str, Metrics]) -> Metrics | None:
    work = side.works.get(name.partition(".")[0])
    return known.get(_job(work)) if work else None
