"""A Grafana dashboard for /metrics: one panel for each measure or pair of measures.

The JSON is Grafana's dashboard model (grafana.com/docs/grafana/latest/dashboards/build-dashboards/
view-dashboard-json-model); panels are of type ``timeseries``.
"""

import re
from collections.abc import Sequence
from typing import Any

from trainyard.common.measures import OF_SERVICE, OF_TRAINING, Measure

WIDTH, HEIGHT, ACROSS = 8, 8, 3
"""Width and height of a panel, in Grafana's 24 columns; and number of panels per row."""

UNITS = (("_bytes", "bytes"), ("_seconds", "s"), ("_ratio", "percentunit"))
"""End of a measure's name → Grafana's unit."""

LARGE = ("straggler_ratio", "update_ratio")
"""Ratios that can exceed 1."""

WINDOW = "$__rate_interval"


def dashboard() -> dict[str, Any]:
    """Return the dashboard, to be imported, or provisioned from a file."""
    rows = [("Pipelines and endpoints", OF_SERVICE), ("Trainings", OF_TRAINING)]
    panels: list[dict[str, Any]] = []
    for title, measures in rows:
        panels += _row(title, measures, len(panels) + 1, _bottom(panels))
    return {
        "title": "Trainyard",
        "uid": "trainyard",
        "schemaVersion": 39,
        "tags": ["trainyard"],
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "panels": panels,
    }


def expressions(found: dict[str, Any]) -> list[str]:
    """Return every expression of a dashboard."""
    return [one["expr"] for panel in found["panels"] for one in panel.get("targets", ())]


def named(expression: str) -> set[str]:
    """Return the names of the series in an expression."""
    return set(re.findall(r"trainyard_\w+", expression))


def _bottom(panels: Sequence[dict[str, Any]]) -> int:
    return max((p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels), default=0)


def _row(title: str, measures: Sequence[Measure], first: int, top: int) -> list[dict[str, Any]]:
    place = {"h": 1, "w": 24, "x": 0, "y": top}
    head = {"id": first, "type": "row", "title": title, "gridPos": place, "collapsed": False}
    return [head, *(_panel(m, first + 1 + n, n, top + 1) for n, m in enumerate(measures))]


def _panel(measure: Measure, number: int, place: int, top: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    down, right = divmod(place, ACROSS)
    return {
        "id": number,
        "type": "timeseries",
        "title": measure.says,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": right * WIDTH, "y": top + down * HEIGHT},
        "datasource": source,
        "targets": [
            {"expr": _expression(measure), "legendFormat": _legend(measure), "refId": "A"}
            | {"datasource": source}
        ],
        "fieldConfig": {"defaults": {"unit": _unit(measure)}, "overrides": []},
    }


def _expression(measure: Measure) -> str:
    """Return the expression: a counter's increase, a summary's mean over the window."""
    if measure.kind == "counter":
        return f"increase({measure.name}[{WINDOW}])"
    if measure.kind == "summary":
        total, count = (f"increase({name}[{WINDOW}])" for name in measure.series)
        return f"{total} / {count}"
    return measure.name


def _legend(measure: Measure) -> str:
    labels = [*measure.dimensions.values(), *measure.sources[0].labels]
    return " ".join(f"{{{{{label}}}}}" for label in labels or ["instance"])


def _unit(measure: Measure) -> str:
    if measure.name.endswith(LARGE):
        return "short"
    return next((unit for end, unit in UNITS if measure.name.endswith(end)), "short")
