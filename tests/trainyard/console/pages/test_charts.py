"""Charts: metrics that share a plot, points as the browser gets them, and what it draws."""

import hashlib
import math
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import faults
from tests.trainyard.emulator.harness import Cloud, train_step
from trainyard.console.account_cache import Account
from trainyard.console.metric_curves import Metrics
from trainyard.console.pages import charts
from trainyard.console.pages.charts import Curve, Line, choose_axis, group_metrics, render_chart
from trainyard.console.web_server import create_console_app, serve_console
from trainyard.runs.metric_lines import Sample

pytestmark = pytest.mark.long

OURS = ["train:step", "train:learning_rate", "train:loss", "train:step_seconds",
        "train:data_seconds", "train:optimizer_seconds", "validation:loss"]  # fmt: skip


ALONE = ["train:learning_rate", "train:step_seconds", "train:data_seconds",
         "train:optimizer_seconds"]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (OURS, {"loss": ("train:loss", "validation:loss")} | {one: (one,) for one in ALONE}),
        (["eval_loss", "loss", "epoch"], {"loss": ("eval_loss", "loss")}),
        (["test", "train:x_seconds"], {"test": ("test",), "train:x_seconds": ("train:x_seconds",)}),
    ],
)
def test_metrics_share_a_plot_by_their_names(names: list[str], shared: dict):
    assert [(title, tuple(found)) for title, found in group_metrics(names)] == [*shared.items()]


MANY = 100_000
HOSTILE = "</figure><script>alert(1)</script>\x1b[31m\u202e"


def make_metrics(values: list[float], steps: list[float | None] | None = None) -> Metrics:
    """Return metrics with a value for each second."""
    found = Metrics(counter="step")
    for i, value in enumerate(values):
        found.samples["loss"].add(Sample(1_000.0 * i, steps[i] if steps else i, value))
    return found


@pytest.fixture
def console_client(cloud: Cloud, monkeypatch):
    """Flask's client of a console in which every training job has metrics of our choice."""
    jobs: dict[str, Metrics] = {}
    monkeypatch.setattr(charts, "read_metrics", lambda here, job: jobs[job])
    asking = create_console_app(Account(), "key").test_client()
    asking.get("/?key=key")
    return asking, jobs


def make_curves_address(*jobs: str, after: str) -> str:
    curves = [("job", job) for job in jobs] + [("name", "loss") for _ in jobs]
    return "/curves?" + urlencode([*curves, ("after", after)])


def test_a_browser_gets_what_is_new_and_infinite_values_as_text(console_client):
    client, jobs = console_client
    jobs |= {
        "a": make_metrics([3.0, math.nan, math.inf]),
        "b": make_metrics([-math.inf, 1e200, 2.0]),
    }
    whole = client.get(make_curves_address("a", "b", after="0,0")).json
    assert whole["x"] == "step"
    assert [one["y"] for one in whole["lines"]] == [[3.0, "nan", "inf"], ["-inf", "inf", 2.0]]
    for wrong in ("0", "0,x", ""):  # it names no curves
        assert client.get(make_curves_address("a", "b", after=wrong)).status_code == 400
    jobs["a"].samples["loss"].add(Sample(3_000, 3, 1.5))
    fresh = client.get(make_curves_address("a", "b", after="3,3")).json["lines"]
    assert [(one["to"], one["x"], one["y"]) for one in fresh] == [(4, [3.0], [1.5]), (3, [], [])]


def test_across_is_the_counter_if_every_value_has_one_else_the_time():
    counted, mixed = make_metrics([1.0, 2.0], [10, 20]), make_metrics([1.0, 2.0], [10, None])
    name, [place] = choose_axis([Curve("l", "j", "loss", counted)])
    assert (name, place(1)) == ("step", 20)
    name, [place] = choose_axis([Curve("l", "j", "loss", mixed)])
    assert (name, place(1)) == ("seconds since the first value", 1.0)


def test_a_chart_says_in_words_what_it_shows_and_names_are_text(cloud: Cloud):
    lines = [Line(HOSTILE, [1, 2, 3], [3.0, 1.0, math.nan]), Line("best", [2], [1.0], marks=True)]
    with create_console_app(Account(), "key").test_request_context("/"):
        html = render_chart("k", HOSTILE, lines, x="version")
    assert "<script" not in html and "\x1b" not in html and "\u202e" not in html
    assert "last nan, lowest 1 at version 2, highest 3 at version 1; best: 1 at version 2" in html
    assert "style=" not in html


UPLOT = {
    "uplot.js": "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of the files in uPlot 1.6.31 of the npm registry, dist/uPlot.iife.min.js and .css."""


def test_the_library_is_its_authors_release_byte_for_byte(client):
    for name, digest in UPLOT.items():
        assert hashlib.sha256(client.get(f"/library/{name}").data).hexdigest() == digest
        assert client.get(f"/library/../{name}").status_code == 404
    assert client.get("/library/figure.py").status_code == 404


@pytest.fixture(scope="module")
def trained_run(cloud: Cloud) -> str:
    """Id of a run with a training."""
    cloud.create("curved", [train_step("Train", "true")])
    return cloud.run("curved")[0]["PipelineExecutionArn"].rpartition("/")[2]


@pytest.fixture
def charts_tab(cloud: Cloud, trained_run: str, chromium, monkeypatch):
    """A tab with the page of a step that trains, of whose metrics we decide."""
    metrics = Metrics(counter="step")
    for module in ("charts", "step"):
        reader = f"trainyard.console.pages.{module}.read_metrics"
        monkeypatch.setattr(reader, lambda here, job: metrics)
    place = f"/runs/curved/{trained_run}/Train"
    with serve_console(Account(), "key") as address:
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        tab, complaints = context.new_page(), []
        tab.on("console", lambda said: said.type == "error" and complaints.append(said.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(address)
        yield tab, metrics, address.partition("/?")[0] + place
        context.close()
        assert not complaints


def test_values_are_read_zoomed_smoothed_and_on_a_logarithmic_axis_by_keyboard(charts_tab):
    page, metrics, place = charts_tab
    for i in range(1, 101):
        value = math.nan if i == 50 else math.inf if i == 60 else 100.0 / i
        metrics.samples["loss"].add(Sample(1_000 * i, i, value))
    page.goto(place)
    plot = page.locator(".plot")
    expect(plot).to_have_attribute("data-drawn", "100")
    assert faults(page) == []
    plot.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("figure output")).to_have_text("step 2: loss 50")
    expect(page.locator(".u-legend")).to_contain_text("50")
    page.keyboard.press("End")
    expect(page.locator("figure output")).to_have_text("step 100: loss 1")
    for _ in range(3):
        page.keyboard.press("+")
    page.keyboard.press("Home")
    expect(page.locator("figure output")).to_contain_text("step 98")
    page.get_by_label("smoothing").select_option("5")
    expect(page.locator(".u-legend")).to_contain_text("loss (mean of 5)")
    plot.focus()
    page.keyboard.press("Home")
    expect(page.locator("figure output")).to_contain_text("step 98")  # the zoom stays
    page.get_by_label("logarithmic").check()
    page.get_by_role("button", name="show all").click()
    plot.focus()
    page.keyboard.press("Home")
    expect(page.locator("figure output")).to_have_text("step 1: loss (mean of 5) 100")


def test_a_curve_grows_while_it_is_read_and_without_script_its_values_are_there(
    charts_tab, chromium
):
    page, metrics, place = charts_tab
    metrics.until = 1.0  # there is more
    for i in range(10):
        metrics.samples["loss"].add(Sample(1_000 * i, i, 1.0 * i))
    page.goto(place)
    expect(page.locator(".plot")).to_have_attribute("data-drawn", "10")
    for i in range(10, 30):
        metrics.samples["loss"].add(Sample(1_000 * i, i, 1.0 * i))
    metrics.until = None
    expect(page.locator(".plot")).to_have_attribute("data-drawn", "30")
    words = "loss: last 29, lowest 0 at step 0, highest 29 at step 29"
    expect(page.locator(".words")).to_have_text(words)
    context = chromium.new_context(java_script_enabled=False)
    context.add_cookies(page.context.cookies())
    (tab := context.new_page()).goto(place)
    expect(tab.locator("figure .words")).to_have_text(words)
    expect(tab.get_by_label("smoothing")).to_be_hidden()
    context.close()


PIXELS = """
() => {
  const canvas = document.querySelector(".plot canvas");
  const { width, height } = canvas;
  const all = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const inner = document.querySelector(".u-over").getBoundingClientRect();
  const outer = canvas.getBoundingClientRect();
  const [left, above] = [inner.left - outer.left, inner.top - outer.top];
  const rows = [];  // of each column, the first and the last row in the line's blue
  for (let x = 0; x < width; x++) {
    let [top, foot] = [null, null];
    for (let y = 0; y < above + inner.height; y++) {
      const at = 4 * (y * width + x);
      if (all[at + 2] - all[at] > 90) [top, foot] = [top ?? y, y];
    }
    rows.push([top, foot]);
  }
  return { rows, left, top: above, wide: inner.width, high: inner.height };
}
"""


def test_a_hundred_thousand_points_are_drawn_in_a_second_and_none_is_a_pixel_off(charts_tab):
    page, metrics, place = charts_tab
    values = [math.sin(i / 9_000) + 0.2 * math.sin(i * 7.13) for i in range(MANY)]
    values[31_234] = 4.0
    for i, value in enumerate(values):
        metrics.samples["loss"].add(Sample(i, i, value))
    page.goto(place, wait_until="commit")
    expect(page.locator(".plot")).to_have_attribute("data-drawn", str(MANY))
    taken = page.evaluate(
        """async () => {
            const began = performance.now();
            const place = document.querySelector(".plot");
            delete place.dataset.drawn;
            const chart = charts.get(place);
            Object.assign(chart, { lines: null });
            await refresh(chart, place.closest("figure").dataset.chart);
            await new Promise(requestAnimationFrame);
            return performance.now() - began;
        }"""
    )
    print(f"{MANY:,} points fetched and drawn in {taken:.0f} ms")
    assert taken < 1_000
    seen = page.evaluate(PIXELS)
    low, high = page.evaluate(
        "[...charts.values()].map(one => [one.plot.scales.y.min, one.plot.scales.y.max])[0]"
    )
    worst, wide = 0.0, seen["wide"]
    for column in range(5, int(wide) - 5):
        places = [round((column + by) / wide * (MANY - 1)) for by in (-1.5, 2.5)]
        inside = values[places[0] : places[1] + 1]
        top, foot = seen["rows"][round(seen["left"]) + column]
        wanted = [(high - value) / (high - low) * seen["high"] + seen["top"] for value in inside]
        assert top is not None
        worst = max(worst, min(wanted) - 1.5 - top, foot - max(wanted) - 1.5)
    assert worst < 1
    peak = seen["rows"][round(seen["left"] + 31_234 / (MANY - 1) * seen["wide"])]
    assert abs(peak[0] - (high - 4.0) / (high - low) * seen["high"] - seen["top"]) <= 1.5
