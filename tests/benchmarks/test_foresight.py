"""The published rows, and constants from them."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.foresight.fitting import (
    SPREADS,
    START,
    TIMES,
    compute_errors,
    fit_constants,
    read_rows,
    select_cases,
)
from benchmarks.foresight.holding_out import (
    GROUPS,
    compute_reach,
    flag_covered,
    flag_shared_devices,
    hold_out_groups,
    judge_choices,
    score_errors,
)
from trainyard.foresight import step_time

pytestmark = pytest.mark.sweep

OF = select_cases(read_rows(TIMES))


def test_a_row_is_what_its_source_says():
    rows = read_rows(("mpt",))["mpt"]
    wanted = {"gpu": "H100-80", "gpus": 512, "hidden": 8192, "micro_batch": 8, "recompute": "full"}
    found = [row for row in rows if wanted.items() <= row["row"].items()]
    assert [row["measured"] for row in found] == [{"tokens_per_second_per_gpu": 1007.0}]


def test_constants_are_those_of_the_rows():
    assert {case.setting.gpu for case in OF} == step_time.FITTED_ON
    fitted = fit_constants(OF)
    spreads = {name: getattr(fitted, name) for name in SPREADS}
    shipped = replace(step_time.CONSTANTS, **spreads)
    assert np.allclose(compute_errors(OF, shipped), compute_errors(OF, fitted), atol=0.02)


def test_fit_finds_the_constants_that_made_the_times():
    work = replace(START, matmul=0.6, launch_us=1500.0)
    made = [replace(case, measured=case.measured * (1 + off)) for case, off in
            zip(OF, compute_errors(OF, work), strict=True)]  # fmt: skip
    assert score_errors(compute_errors(made, fit_constants(made))).mean < 0.02


def test_what_was_never_seen_lies_in_the_intervals_which_are_those_of_the_rows():
    """Nearly all that do not are B200's, of which one source has rows; the intervals are as far as
    others than the device's only source have come out, in logarithms.
    """
    unseen = {name: hold_out_groups(OF, group) for name, group in GROUPS.items()}
    off = unseen["model size"]
    found = score_errors(off, flag_covered(OF, off, "model size", unseen))
    assert found.mean < 0.06 and found.within > 0.87 and found.covered > 0.9
    of_one = np.array([case.setting.gpu == "B200" for case in OF])
    for fold in ("source", "GPU"):
        within = flag_covered(OF, unseen[fold], fold, unseen)
        assert within.mean() > 0.8 and within[~of_one].mean() > 0.85, fold
    c, several = step_time.CONSTANTS, flag_shared_devices(OF)
    sources = [case.source for case, too in zip(OF, several, strict=True) if too]
    near = compute_reach(unseen["source"][several], sources)
    elsewhere = compute_reach(unseen["GPU"], [case.setting.gpu for case in OF])
    assert np.allclose(np.log([c.high, 1 / c.low]), near, atol=0.01)
    assert np.allclose(np.log([c.high_elsewhere, 1 / c.low_elsewhere]), elsewhere, atol=0.01)


def test_a_group_that_is_yet_to_come_lies_within_reach_eight_times_of_ten():
    """Though what a group's rows have in common is more than what they differ by, and some groups
    have fifty rows and some one.
    """
    draws = np.random.default_rng(1)
    sizes = (1, 50, 2, 20, 5, 1, 10, 3, 7)
    found = []
    for _ in range(400):
        groups = [draws.normal(0, 0.2) + draws.normal(0, 0.05, size) for size in (*sizes, 1)]
        names = np.repeat([str(i) for i in range(len(sizes))], sizes).tolist()
        within = compute_reach(np.expm1(np.concatenate(groups[:-1])), names)
        found.append(abs(groups[-1][0]) <= within)
    assert 0.76 < np.mean(found) < 0.92
    off = np.full(30, 0.01)
    assert compute_reach(off, ["a", "b", "c"] * 10) == float("inf")  # too few groups
    assert compute_reach(off, ["a", "b", "c", "d", "e"] * 6) == pytest.approx(np.log(1.01))


def test_the_fastest_layout_is_near_the_top():
    found = judge_choices(OF)
    assert np.mean([choice.lost <= 0.05 for choice in found]) > 0.9
