"""The published rows, and constants from them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.foresight import choosing, published, whole_runs
from benchmarks.foresight.fitting import SPREADS, START, cases, errors, fit
from benchmarks.foresight.holding_out import GROUPS, deciles, held_out, inside, score
from trainyard.foresight import time

OF = cases(published.read(tuple(published.SOURCES)))


@pytest.mark.parametrize("name", published.SOURCES)
def test_rows_are_what_their_source_says(name: str):
    assert published.read((name,))[name] == json.loads(json.dumps([*published.SOURCES[name]()]))


def test_a_row_stands_for_its_line():
    rows = published.read(("mpt",))["mpt"]
    wanted = {"gpu": "H100-80", "gpus": 512, "hidden": 8192, "micro_batch": 8, "recompute": "full"}
    found = [row for row in rows if wanted.items() <= row["row"].items()]
    assert [row["measured"] for row in found] == [{"tokens_per_second_per_gpu": 1007.0}]


def test_constants_are_those_of_the_rows():
    fitted = fit(OF)
    spreads = {name: getattr(fitted, name) for name in SPREADS}
    shipped = replace(time.CONSTANTS, **spreads)
    assert np.allclose(errors(OF, shipped), errors(OF, fitted), atol=0.02)


def test_fit_finds_the_constants_that_made_the_times():
    work = replace(START, matmul=0.6, launch_us=1500.0)
    made = [replace(case, measured=case.measured * (1 + off)) for case, off in
            zip(OF, errors(OF, work), strict=True)]  # fmt: skip
    assert score(errors(made, fit(made))).mean < 0.02


def test_devices_with_rows_are_named():
    assert {case.setting.gpu for case in OF} == time.FITTED_ON


def test_sizes_that_were_never_seen():
    group = GROUPS["model size"]
    off = held_out(OF, group)
    found = score(off, inside(OF, off, group, off))
    assert found.mean < 0.06 and found.within > 0.87 and 0.75 < found.covered < 0.85


def test_deciles_hold_eight_of_ten():
    off = np.random.default_rng(1).normal(0, 0.1, 1000)
    low, high = deciles(off)
    assert np.mean((low <= 1 / (1 + off)) & (1 / (1 + off) <= high)) == pytest.approx(0.8, abs=0.01)


def test_a_whole_run_took_longer_than_its_steps():
    for run in whole_runs.predicted():
        assert run.foreseen_hours < run.published_hours


def test_the_fastest_layout_is_near_the_top():
    found = choosing.scores(OF)
    assert np.mean([choice.lost <= 0.05 for choice in found]) > 0.9
