"""Charts: every value is drawn or marked, and foreign names stay text."""

import math
import re
from xml.etree import ElementTree

import pytest

from trainyard.console.charts import COLOURS, DASHES, Scale, around, line_chart, thinned

HOSTILE = "</title><script>alert(1)</script>\x1b[31m\u202e"


def drawn(chart: str) -> ElementTree.Element:
    """Return the chart as a tree; raise an error if it is not well-formed."""
    return ElementTree.fromstring(re.sub(r" hidden(?=[ >])", ' hidden=""', chart))


def paths(chart: str, kind: str) -> list[str]:
    plot = chart.partition('class="legend"')[0]
    return re.findall(rf'<path class="{kind} c\d d\d" d="([^"]+)"', plot)


def test_a_line_has_a_gap_where_a_value_is_none_and_a_mark_there():
    points = [(0, 1.0), (1, math.nan), (2, 2.0), (3, math.inf), (4, -math.inf), (5, 1e300), (6, 3)]
    chart = line_chart("loss", "loss", [("loss", points)])
    drawn(chart)
    (line,) = paths(chart, "line")
    assert line.count("M") == 3
    assert re.findall(r"loss: (\S+) at step \d", chart.partition("circle")[0])[-4:] == [
        "nan",
        "inf",
        "-inf",
        "1e+300",
    ]


def test_a_spike_among_many_points_stays():
    points = [(float(i), 1.0) for i in range(100_000)]
    points[77_777] = (77_777.0, 50.0)
    chart = line_chart("k", "t", [("a", points)])
    assert len(chart) < 60_000
    heights = [float(y) for y in re.findall(r",([\d.]+)", paths(chart, "line")[0])]
    assert min(heights) < 25 < 100 < max(heights)


def test_thinning_keeps_first_lowest_highest_and_last_of_a_column_in_order():
    points = [(0.1, 3.0), (0.2, 9.0), (0.3, 1.0), (0.4, 5.0), (1.9, 4.0), (2.5, 7.0)]
    across = Scale(0, 10, 0, 10)
    assert list(thinned(points, across)) == [points[i] for i in (0, 1, 2, 4, 5)]


@pytest.mark.parametrize(
    "values",
    [[], [0.0], [1.0, 1.0], [1e-300, 2e-300], [1e150, -1e150], [1.0, 1.0 + 1e-15], [-5, 1e9]],
)
def test_any_values_have_an_axis_with_some_ticks_that_differ(values: list[float]):
    ticks = around(values, 200, 10).ticks(5)
    assert 2 <= len(ticks) <= 6
    assert len({text for _, text in ticks}) == len(ticks)


def test_names_are_text_and_each_series_has_its_own_look():
    series = [(f"{HOSTILE}{i}", [(0, i), (1, i + 1)]) for i in range(50)]
    chart = line_chart("k", HOSTILE, series, x="<x>", y="<y>")
    drawn(chart)
    assert "<script" not in chart and "\x1b" not in chart and "\u202e" not in chart
    assert "style=" not in chart
    looks = re.findall(r'class="line (c\d d\d)" d="M0', chart)
    assert len(set(looks)) == 50 and COLOURS * DASHES >= 50
    assert len(chart) < 200_000


def test_a_chart_without_points_is_still_one():
    assert "has no value" in line_chart("k", "t", [("a", []), ("b", [(0, math.nan)])])
