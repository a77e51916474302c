from statistics import mean

import pytest

from benchmarks.foresight import memories
from benchmarks.foresight.fitting import read_rows
from benchmarks.foresight.memories import SILENT, Peak
from trainyard.foresight import memory
from trainyard.foresight.setting import Setting

pytestmark = pytest.mark.long

SOURCES = read_rows()
STATED = [one for one in memories.select_peaks(SOURCES) if one.source not in SILENT]


def test_published_peaks_are_foreseen():
    found = [memory.predict_memory(one.setting).peak for one in STATED]
    pairs = list(zip(STATED, found, strict=True))
    assert mean(abs(peak.p50 / one.measured - 1) <= 0.1 for one, peak in pairs) >= 0.85
    assert mean(peak.p10 <= one.measured <= peak.p90 for one, peak in pairs) >= 0.8


def test_nothing_that_ran_out_of_memory_is_said_to_fit():
    said = memories.count_verdicts(SOURCES)
    assert sum(said["oom"].values()) >= 6
    assert said["oom"]["yes"] == 0
    assert said["ran"]["no"] <= 2


@pytest.mark.parametrize("factor", [0.8, 1.1])
def test_the_interval_holds_what_it_is_fitted_to(factor: float):
    """Peaks made from other constants: of what comes and goes, all off by one factor."""
    setting = Setting.model_validate({"gpu": "H100-80", "layers": 8, "hidden": 2048, "gpus": 8})
    rows = []
    for micro_batch in range(1, 6):
        given = setting.model_copy(update={"micro_batch": micro_batch})
        found = memory.predict_memory(given, constants=memory.Constants(0.0, 1, 1, 1, 0))
        stays = sum(found.categories[name].p50 for name in memory.STAYS)
        rows.append(Peak("made", given, stays + (found.peak.p50 - stays) * factor))
    fitted = memories.fit_constants(rows)
    for one in rows:
        peak = memory.predict_memory(one.setting, constants=fitted).peak
        assert peak.p10 <= one.measured * 1.001
        assert peak.p90 >= one.measured * 0.999
