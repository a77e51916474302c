"""Two to fifty runs side by side: what differs between them."""

from collections.abc import Callable, Hashable, Mapping, Sequence

from flask import Blueprint, render_template

from trainyard.console import live
from trainyard.console.account import account
from trainyard.console.comparison import plots
from trainyard.console.comparison.changes import changes
from trainyard.console.comparison.choice import AXES, Choice, chosen
from trainyard.console.comparison.inputs import code_rows, data_rows
from trainyard.console.comparison.sides import Side, sides, stamp
from trainyard.console.comparison.tables import Link, Table, ordered, table
from trainyard.console.wording import figure, usd
from trainyard.runs.comparing.differences import Row, among, order, rows
from trainyard.runs.table import duration

page = Blueprint("compare", __name__)

DELTAS: Mapping[str, Callable[[float], str]] = {"metrics": figure, "times": duration, "cost": usd}
"""Tables whose numbers are followed by how far they are from the baseline's."""

Groups = Mapping[str, Sequence[Row]]


def _stamp() -> Hashable:
    here, choice = account(), chosen()
    read = plots.stamp(here, sides(here, choice.runs), choice.plots)
    return stamp(here, choice.runs), read


@live.page(page, "/compare", template="compare.html.j2", stamp=_stamp)
def compare() -> live.Fragments:
    """The runs that the address names, each as ``run=<pipeline>/<execution>``."""
    here, choice = account(), chosen()
    found = sides(here, choice.runs)
    everything = choice.everything or len(found) < 2
    drawn = plots.wanted(found, choice.plots)
    curves = plots.curves(here, found, drawn)
    groups: dict[str, Groups] = {
        "metrics": {"": _metrics(found, curves, everything=everything)},
        "settings": _settings(found, everything=everything),
        "code": code_rows(here, found, everything=everything),
        "data": data_rows(here, found, everything=everything),
        "times": {"": rows([side.times for side in found], everything=everything)},
        "cost": {"": rows([side.costs for side in found], everything=everything)},
    }
    base = choice.runs.index(choice.base) if choice.base else 0
    shown = _sorted(groups, len(found), choice)
    tables = {
        name: table(
            name,
            each,
            base,
            shown,
            delta=DELTAS.get(name),
            link=_to_file(choice) if name == "code" else lambda group, row, run: "",
        )
        for name, each in groups.items()
    }
    common = {"choice": choice, "sides": found, "base": base}
    return {
        "runs": render_template("compare/runs.html.j2", **common, order=shown),
        **{name: _fragment(each, common) for name, each in tables.items()},
        "curves": render_template(
            "compare/curves.html.j2",
            **common,
            names=plots.names(found),
            drawn=drawn,
            axes=AXES,
            notes=plots.notes(curves),
            plots=[plots.plot(i, curve, choice.axis) for i, curve in enumerate(curves)],
        ),
        "changes": render_template(
            "compare/changes.html.j2", **common, changed=changes(here, found, base, choice.file)
        ),
    }


def _metrics(
    found: Sequence[Side], curves: Sequence[plots.Curve], *, everything: bool
) -> list[Row]:
    """The last values, and behind them the lowest and the highest of what is drawn."""
    best = plots.best(curves, len(found))
    columns = [{**side.metrics, **more} for side, more in zip(found, best, strict=True)]
    return rows(columns, everything=everything)


def _settings(found: Sequence[Side], *, everything: bool) -> Groups:
    """Rows of what the runs and their steps were given, and how these ended."""
    read = [not side.fault for side in found]
    groups = {
        "run": [side.run for side in found],
        "parameters": [side.parameters for side in found],
    }
    each = {name: among(columns, read, everything=everything) for name, columns in groups.items()}
    for step in order([side.works for side in found]):
        works = [side.works.get(step) for side in found]
        kinds = [{"type": kind} if (kind := work and work.kind) else {} for work in works]
        each[f"steps.{step}"] = [
            *among(kinds, read, everything=everything),
            *among(
                [work.group if work else {} for work in works],
                [work is not None for work in works],
                everything=everything,
            ),
        ]
    return each


def _sorted(groups: Mapping[str, Groups], count: int, choice: Choice) -> list[int]:
    for name, each in groups.items():
        if found := ordered(each, count, choice.sort, name):
            return found
    return list(range(count))


def _to_file(choice: Choice) -> Link:
    def link(group: str, row: Row, run: int) -> str:
        value = row.values[run]
        is_file = value is not None and value.known
        return choice.address(file=f"{group}/{row.path}") + "#changes" if is_file else ""

    return link


def _fragment(each: Table, common: Mapping[str, object]) -> str:
    return render_template("compare/table.html.j2", table=each, **common)
