"""A Grafana dashboard for /metrics: one panel for each measure or pair of measures.

The JSON is Grafana's dashboard model (grafana.com/docs/grafana/latest/dashboards/build-dashboards/
view-dashboard-json-model); panels are of type ``timeseries``.
"""

import re
from typing import Any

from trainyard.common.measures import OF_SERVICE, Measure

WIDTH, HEIGHT, ACROSS = 8, 8, 3
"""Width and height of a panel, in Grafana's 24 columns; and number of panels per row."""

WINDOW = "$__rate_interval"


def dashboard() -> dict[str, Any]:
    """Return the dashboard, to be imported, or provisioned from a file."""
    return {
        "title": "Trainyard",
        "uid": "trainyard",
        "schemaVersion": 39,
        "tags": ["trainyard"],
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "panels": [_panel(measure, place) for place, measure in enumerate(OF_SERVICE)],
    }


def expressions(board: dict[str, Any]) -> list[str]:
    """Return every expression of a dashboard."""
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def find_series(expression: str) -> set[str]:
    """Return the names of the series in an expression."""
    return set(re.findall(r"trainyard_\w+", expression))


def _panel(measure: Measure, place: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    unit = "s" if measure.name.endswith("_seconds") else "short"
    down, right = divmod(place, ACROSS)
    labels = [*measure.dimensions.values(), *measure.sources[0].labels]
    legend = " ".join(f"{{{{{label}}}}}" for label in labels or ["instance"])
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": measure.says,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": right * WIDTH, "y": down * HEIGHT},
        "datasource": source,
        "targets": [
            {"expr": _expression(measure), "legendFormat": legend, "refId": "A"}
            | {"datasource": source}
        ],
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
    }


def _expression(measure: Measure) -> str:
    """Return the expression: a counter's increase, a summary's mean over the window."""
    if measure.kind == "counter":
        return f"increase({measure.name}[{WINDOW}])"
    if measure.kind == "summary":
        total, count = (f"increase({name}[{WINDOW}])" for name in measure.series)
        return f"{total} / {count}"
    return measure.name
