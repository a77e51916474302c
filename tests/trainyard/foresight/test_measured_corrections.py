"""What is learned of trainings that ran."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.common.errors import ForesightError
from trainyard.foresight.interval import Spread
from trainyard.foresight.measured_corrections import (
    Calibration,
    Measurement,
    estimate_factor,
    read_measured_runs,
)
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import predict_step_time

SHIPPED = Spread(0.8, 1.0, 1.25)
SETTING = Setting(gpu="H100-80", gpus=8, layers=32, hidden=4096, micro_batch=2, shard="full")
OTHER = SETTING.model_copy(update={"gpu": "A100-80"})
RATIOS = st.lists(st.floats(0.3, 3), min_size=1, max_size=30)


def estimate_from_ratios(*ratios: float) -> Spread:
    return estimate_factor([*map(math.log, ratios)], SHIPPED)


def make_measurement(ratio: float, job: str = "one", setting: Setting = SETTING) -> Measurement:
    seconds = predict_step_time(setting).step_seconds.p50 * ratio
    return Measurement(job=job, setting=setting, step_seconds=seconds, lines=20)


def width(spread: Spread) -> float:
    return math.log(spread.p90 / spread.p10)


def test_one_training_moves_the_median_half_and_many_that_agree_narrow_the_interval():
    assert estimate_from_ratios(1.44).p50 == pytest.approx(1.2)
    assert estimate_from_ratios(1 / 1.44).p50 == pytest.approx(1 / 1.2)
    assert estimate_from_ratios(*[1.3] * 50).p50 == pytest.approx(1.3, rel=0.01)
    widths = [width(estimate_from_ratios(*[1.3] * count)) for count in (1, 2, 4, 8, 50)]
    assert widths == sorted(widths, reverse=True)
    assert width(SHIPPED) > widths[0] and widths[-1] < width(SHIPPED) / 2


def test_trainings_that_contradict_each_other_widen_it():
    alike, apart = (
        estimate_from_ratios(*[1.0] * 6),
        estimate_from_ratios(0.5, 2.0, 0.5, 2.0, 0.5, 2.0),
    )
    assert apart.p50 == pytest.approx(1)
    assert width(apart) > width(SHIPPED) > width(alike)


@given(RATIOS)
def test_the_median_lies_between_what_was_shipped_and_what_was_measured(ratios: list[float]):
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    found = estimate_from_ratios(*ratios)
    assert min(1, mean) * (1 - 1e-9) <= found.p50 <= max(1, mean) * (1 + 1e-9)
    assert found.p10 < found.p50 < found.p90


def test_a_device_that_was_measured_is_foreseen_as_it_was():
    shipped = predict_step_time(SETTING)
    assert Calibration().predict_time(SETTING) == shipped  # nothing was measured, or another device
    assert Calibration((make_measurement(2, setting=OTHER),)).predict_time(SETTING) == shipped
    slower = Calibration((make_measurement(1.5), make_measurement(1.5, "two"))).predict_time(
        SETTING
    )
    by = slower.step_seconds.p50 / shipped.step_seconds.p50
    assert 1 < by < 1.5 and slower.mfu == pytest.approx(shipped.mfu / by)
    assert sum(slower.parts.values()) == pytest.approx(slower.step_seconds.p50)
    tokens = slower.tokens_per_second_per_gpu.p50 * SETTING.gpus * slower.step_seconds.p50
    assert tokens == pytest.approx(SETTING.tokens)


def test_a_job_counts_once():
    both = Calibration((make_measurement(2.0),)).with_trainings(
        [make_measurement(1.1), make_measurement(1.2, "two")]
    )
    assert [each.job for each in both.trainings] == ["one", "two"]
    assert both.count_runs("H100-80") == 2 and both.trainings[0] == make_measurement(1.1)


def test_what_was_measured_is_kept_and_read_again(tmp_path: Path):
    place = tmp_path / "deep" / "calibration.json"
    assert read_measured_runs(place) == Calibration()
    known = Calibration((make_measurement(1.5), make_measurement(1.2, "two", OTHER)))
    known.write(place)
    assert read_measured_runs(place).trainings == known.trainings
    kept = json.loads(place.read_text())["trainings"]  # no factor, which constants may outdate
    assert all(set(one) == {"job", "setting", "step_seconds", "lines"} for one in kept)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2}', '{"format": 1, "trainings": [{"job": "x"}]}']
)
def test_what_is_no_calibration_is_refused(tmp_path: Path, text: str):
    place = tmp_path / "calibration.json"
    place.write_text(text)
    with pytest.raises(ForesightError, match="is not a calibration .*move it away"):
        read_measured_runs(place)
    with pytest.raises(ForesightError, match="cannot be written"):
        Calibration().write(place / "below.json")
