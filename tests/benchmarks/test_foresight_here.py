"""What is predicted of trainings here is what was committed before they were measured."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.foresight.here import __main__ as here
from benchmarks.foresight.here.measure import recorded, steps
from benchmarks.foresight.here.prediction import COVERED, PRICED, Prices, fitted, seconds
from benchmarks.foresight.here.settings import CALIBRATION, LAYOUTS, TEST, Here, drawn
from benchmarks.foresight.here.work import Call, Rank
from training.config import TrainConfig

PROBE = json.loads(here.PROBE.read_text())


def test_no_setting_that_is_predicted_was_calibrated_on():
    asked, others = drawn(TEST, here.SETTINGS), drawn(CALIBRATION, here.OTHERS)
    assert len({*asked, *others}) == here.SETTINGS + here.OTHERS
    assert {*recorded(here.CALIBRATED)} == {*others}
    told = json.loads(here.PREDICTED.read_text())["settings"]
    assert [Here(**one["setting"]) for one in told] == asked
    assert [one.layout for one in asked] == [*LAYOUTS] * (here.SETTINGS // len(LAYOUTS))
    for one in (*asked, *others):
        TrainConfig.model_validate(one.loop(steps(one))).micro_batches(one.ranks)


def test_a_price_is_what_was_measured_and_between_sizes_what_lies_between():
    prices, row = Prices(PROBE), PROBE["measured"][0]["matmul"][0]
    size = row["rows"], row["inner"], row["columns"]
    flops = 2 * int(np.prod(size))
    both = [one["matmul"][0]["seconds"] for one in PROBE["measured"]]
    call = Call("product", row["dtype"], flops, 0, size, 1)
    assert prices.of(call) == pytest.approx(np.mean(both))
    moved = [prices.of(Call("other", "float32", 0, size, (), 1)) for size in (2**14, 2**16, 2**30)]
    assert moved == sorted(moved)
    assert prices.of(Call("free", "float32", 0, 2**20, (), 1)) == 0


def test_every_rank_and_call_is_priced():
    setting, prices = drawn(TEST, 5)[2], Prices(PROBE)
    call = Call("product", "bfloat16", 2 * 64**3, 0, (64, 64, 64), 3)
    rank = Rank([call, replace(call, kind="other", bytes=4096, sizes=())], 10**6)
    alone, both = (seconds(setting, [rank] * n, prices) for n in (1, 2))
    assert setting.layout == "fsdp"
    for name in PRICED:
        assert both[name] == 2 * alone[name], name
    assert alone["product"] == pytest.approx(3 * prices.of(call))
    assert alone["sharded"] > 0 == alone["split"]


def test_factors_are_found_and_their_interval_holds_most_that_had_no_part():
    numbers = np.random.default_rng(0)
    parts = [{"product": a, "steps": b} for a, b in numbers.uniform(0.1, 1, (200, 2))]
    true = np.array([1.2 * one["product"] + 3 * one["steps"] for one in parts])
    exact = fitted(parts[:40], true[:40])
    assert exact.factors == pytest.approx({"product": 1.2, "steps": 3}, rel=1e-2)
    assert exact.off < 0.01
    noisy = true * np.exp(numbers.normal(0, 0.1, 200))
    model = fitted(parts[:40], noisy[:40])
    off = [abs(np.log(model.of(p) / y)) for p, y in zip(parts[40:], noisy[40:], strict=True)]
    assert np.mean(np.array(off) <= model.off) == pytest.approx(COVERED, abs=0.1)


def test_the_guide_has_the_figures_that_are_here():
    told = json.loads(here.PREDICTED.read_text())["settings"]
    figures = here.comparison(told, recorded(here.MEASURED))["figures"]
    guide = (here.FOLDER.parents[2] / "docs/foresight.md").read_text()
    for name, words in (("cpu_seconds", "CPU seconds a step"), ("peak_bytes", "peak memory of")):
        one = figures[name]
        cells = f"{one['mean_error']:.1%} | {one['worst_error']:.1%}".replace("%", " %")
        row = f"{cells} | {one['within_10_percent']} of {one['settings']} | "
        row += f"{one['inside_80_percent_interval']} |"
        line = next(line for line in guide.splitlines() if line.startswith(f"| {words}"))
        assert line.endswith(row), line
