"""What is predicted of trainings here is what was committed before they were measured."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.foresight.here import __main__ as here
from benchmarks.foresight.here.measure import recorded, steps
from benchmarks.foresight.here.prediction import COVERED, fitted, seconds
from benchmarks.foresight.here.prices import key, prices
from benchmarks.foresight.here.settings import CALIBRATION, LAYOUTS, TEST, Here, drawn
from benchmarks.foresight.here.work import Call, Rank, work
from training.config import TrainConfig
from training.probing import alone

SENT = [
    {"kind": kind, "dtype": dtype, "bytes": size, "seconds": size * times * slow * 1e-9}
    for times, kind in enumerate(("all_reduce", "all_gather", "reduce_scatter", "send"), 1)
    for dtype, slow in (("float32", 1), ("bfloat16", 5))
    for size in (2**10, 2**18, 2**22)
]
PROBE = {
    "measured": [
        {"call": {"forward_seconds": 2e-6}, "page_seconds": 5e-10, "collective": SENT},
    ]
}
CALL = Call("aten::mm", "product", "float32", 2 * 64**3, 0, (64, 64, 64), 0, "[[],{}]", 3)


def test_no_setting_that_is_predicted_was_calibrated_on():
    asked, others = drawn(TEST, here.SETTINGS), drawn(CALIBRATION, here.OTHERS)
    assert len({*asked, *others}) == here.SETTINGS + here.OTHERS
    assert {*recorded(here.CALIBRATED)} == {*others}
    assert not {*asked} & {*here.calibrated()}
    told = json.loads(here.PREDICTED.read_text())["settings"]
    assert [Here(**one["setting"]) for one in told] == asked
    assert [one.layout for one in asked] == [*LAYOUTS] * (here.SETTINGS // len(LAYOUTS))
    for one in (*asked, *others):
        TrainConfig.model_validate(one.loop(steps(one))).micro_batches(one.ranks)


def test_a_collective_has_the_price_of_its_kind_and_size(tmp_path):
    size = 2**18
    costs = prices(PROBE, {}, tmp_path / "none.json")
    for name, kind, bytes_ in (
        ("_c10d_functional::all_gather_into_tensor", "all_gather", size * 3 // 2),
        ("c10d::allreduce_", "all_reduce", 2 * size),
        ("ddp::reduce", "all_reduce", size),
    ):
        asked = kind, "float32", size
        (row,) = [row for row in SENT if (row["kind"], row["dtype"], row["bytes"]) == asked]
        price = costs.of(replace(CALL, name=name, kind="collective", bytes=bytes_), 2)
        assert price == pytest.approx(row["seconds"]), name
    waited = replace(CALL, name="_c10d_functional::wait_tensor", kind="collective")
    assert costs.of(waited, 2) == 0
    larger = replace(CALL, name="c10d::send", kind="collective", bytes=2**24)
    halves = replace(larger, dtype="bfloat16")
    assert costs.of(halves, 2) == pytest.approx(5 * costs.of(larger, 2))
    assert costs.of(larger, 2) == pytest.approx(2**24 * 4e-9), "in proportion beyond"


def test_what_cannot_be_made_alone_says_which_call_it_is():
    with pytest.raises(RuntimeError, match=r"aten::mm cannot be made alone with \[\[\],\{\}\]: "):
        alone.priced([("aten::mm", "[[],{}]")])


def test_every_rank_and_call_is_priced(tmp_path):
    setting = drawn(TEST, 5)[2]
    rank = Rank([CALL, replace(CALL, name="aten::view", kind="free", given="")], 10**6, [], [])
    known = {"alone": {"2": {key(CALL): 0.25}}, "fresh": {}}
    (tmp_path / "priced.json").write_text(json.dumps(known))
    costs = prices(PROBE, {}, tmp_path / "priced.json")
    costs = replace(costs, fresh={setting.name: [2e6, 4e6]})
    one, both = (seconds(setting, [rank] * n, costs) for n in (1, 2))
    assert setting.layout == "fsdp"
    assert both["product"] == 2 * one["product"] == pytest.approx(6 * 0.25)
    assert both["calls"] == pytest.approx(2 * 6 * costs.call)
    assert both["pages"] == pytest.approx(6e6 * costs.page)
    assert one["sharded"] > 0 == one["split"]


def test_a_real_step_is_counted_and_each_of_its_calls_has_a_price():
    setting = replace(drawn(TEST, 1)[0], layers=2, dim=64, heads=2, context_length=64)
    setting = replace(setting, vocabulary=257, micro_batch=1, micro_batches=1, recompute="full")
    (rank,) = work(setting)
    found = [call for call in rank.calls if call.given and call.kind == "product"][:3]
    assert all(one > 0 for one in alone.priced([(call.name, call.given) for call in found]))
    assert sum(rank.before) >= 4 * setting.weights  # parameters and two moments, at least
    taken = sum(one for one in rank.during if one > 0)
    assert taken > rank.peak_bytes - sum(rank.before)


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
    if not figures:
        pytest.skip("predicted, and not measured yet")
    guide = (here.FOLDER.parents[2] / "docs/foresight.md").read_text()
    for name, words in (("cpu_seconds", "CPU seconds a step"), ("peak_bytes", "peak memory of")):
        one = figures[name]
        cells = f"{one['mean_error']:.1%} | {one['worst_error']:.1%}".replace("%", " %")
        row = f"{cells} | {one['within_10_percent']} of {one['settings']} | "
        row += f"{one['inside_80_percent_interval']} |"
        line = next(line for line in guide.splitlines() if line.startswith(f"| {words}"))
        assert line.endswith(row), line
