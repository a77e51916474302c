"""The benchmark of training runs, at a size at which its figures mean nothing."""

from pathlib import Path

import pytest

from benchmarks.training.compare import Compared, Run, compare_contenders, make_section
from benchmarks.training.entries import ENTRIES, ESSENTIAL, prepare_data
from benchmarks.training.setting import Setting

pytestmark = pytest.mark.sweep

TINY = Setting(layers=1, heads=2, dim=16, context_length=16, steps=4)


@pytest.mark.slow
def test_trainyard_and_the_hand_written_loop_train_the_same_model(tmp_path: Path):
    setting = prepare_data(TINY, tmp_path)
    chosen = [entry for entry in ENTRIES if entry.name in ("hand", "ours")]
    compared = compare_contenders(setting, 1, chosen, 1, tmp_path / "scratch")
    [hand], [ours] = compared.runs["hand"], compared.runs["ours"]
    assert list(hand.losses) == [1, 2, 4] and hand.step_cpu > 0 < ours.step_cpu
    assert ours.losses == pytest.approx(hand.losses, rel=1e-5)


def test_a_ratio_may_be_above_one_by_the_noise_of_the_hand_written_loop_against_itself():
    runs = {name: [Run({1: 5.5}, cpu) for cpu in (1.0, 2.0, 1.0)] for name in ESSENTIAL}
    runs["hand_again"] = [Run({1: 5.5}, cpu) for cpu in (1.0, 2.2, 0.95)]
    runs["ours"] = [Run({1: 5.5}, cpu) for cpu in (1.04, 2.08, 1.04)]
    [speed, _] = make_section(Compared(1, runs=runs)).targets
    assert speed.demanded == pytest.approx(1.05) and speed.is_met
