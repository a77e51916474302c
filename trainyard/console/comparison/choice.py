"""What somebody chose to compare, and how: all of it stands in the page's address."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from flask import request, url_for
from werkzeug.exceptions import BadRequest

MOST = 50
"""Runs that stand side by side."""
WIDE = 6
"""Runs from which on each is a row, unless the address says otherwise."""
AXES = ("step", "time", "since the start")


@dataclass(frozen=True, slots=True)
class Choice:
    """The query of the page's address."""

    runs: tuple[str, ...]
    """``<pipeline>/<execution>`` of each."""
    base: str
    """The run that the others are compared with."""
    everything: bool
    """Whether what is the same in all of them is shown, too."""
    runs_are_rows: bool
    sort: str
    """The row by which the runs are sorted, as table, group, name; ``-``: the largest first."""
    plots: tuple[str, ...]
    """Metrics of which there are curves."""
    axis: str
    file: str
    """The file of code whose differences are shown: step, place and path."""

    def address(self, **changed: str | tuple[str, ...] | None) -> str:
        """The page with something else chosen; None takes the choice away."""
        asked = {**{name: request.args.getlist(name) for name in request.args}, **changed}
        pairs = [
            (name, value)
            for name, values in asked.items()
            for value in ((values,) if isinstance(values, str) else values or ())
        ]
        return f"{url_for('compare.compare')}?{urlencode(pairs)}"

    def others(self, *names: str) -> list[tuple[str, str]]:
        """What the address says, but for these: what a form keeps."""
        return [pair for pair in request.args.items(multi=True) if pair[0] not in names]

    def without(self, run: str) -> str:
        """The page without that run."""
        return self.address(
            run=tuple(name for name in self.runs if name != run),
            base=None if run == self.base else self.base,
        )


def chosen() -> Choice:
    """What the address of the request says.

    Raises:
        BadRequest: too many runs, or one that is not ``<pipeline>/<execution>``.
    """
    asked = request.args
    runs = tuple(dict.fromkeys(run for run in asked.getlist("run") if run.strip()))
    if len(runs) > MOST:
        raise BadRequest(f"{len(runs)} runs: {MOST} at most stand side by side; take some away")
    for run in runs:
        if not all(run.partition("/")[::2]) or run.count("/") > 1:
            raise BadRequest(f"run={run}: expected <pipeline>/<execution id>")
    wanted = asked.get("base", "")
    return Choice(
        runs=runs,
        base=wanted if wanted in runs else next(iter(runs), ""),
        everything="all" in asked,
        runs_are_rows=asked.get("as", "rows" if len(runs) > WIDE else "columns") == "rows",
        sort=asked.get("sort", ""),
        plots=tuple(dict.fromkeys(asked.getlist("plot"))),
        axis=_one_of(asked, "x", AXES),
        file=asked.get("file", ""),
    )


def _one_of(asked: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    found = asked.get(name, values[0])
    return found if found in values else values[0]
