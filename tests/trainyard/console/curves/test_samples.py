"""Even thinning of long curves: extremes, gaps and the newest value are kept."""

import math
from itertools import pairwise

import numpy as np
import pytest

from trainyard.console.metric_curves import STRETCHES, Samples
from trainyard.runs.metric_series import Sample


def test_of_many_samples_few_stay_with_what_matters():
    samples, spike, gap = Samples(), 31_234, 45_678
    for i in range(100_000):
        value = 99.0 if i == spike else math.nan if i == gap else 1 + 1 / (i + 1)
        samples.add(Sample(float(i), float(i), value))
        assert i % 997 or len(samples.all) <= 4 * STRETCHES + 1
    assert samples.last == Sample(99_999.0, 99_999.0, 1 + 1 / 100_000)
    assert samples.highest == Sample(spike, spike, 99.0) and samples.highest in samples.all
    assert samples.lowest == samples.last
    assert samples.count == 100_000
    assert any(math.isnan(one.value) for one in samples.all)
    assert all(a.at < b.at for a, b in pairwise(samples.all))


@pytest.mark.parametrize("count", [999, 5_000, 50_000, 77_777])
def test_a_long_curve_keeps_the_same_resolution_everywhere(count: int):
    samples = Samples()
    for i in range(count):
        samples.add(Sample(float(i), None, 4 * math.sin(40 * i / count)))
    places = [place for place, _ in samples.numbered]
    assert places[0] == 0 and places[-1] == count - 1
    assert max(b - a for a, b in pairwise(places)) <= samples.length <= 2 * count / STRETCHES
    drawn = np.interp(range(count), places, [one.value for one in samples.all])
    assert np.abs(drawn - 4 * np.sin(40 * np.arange(count) / count)).max() < 0.02 * 8
    assert [samples.all[i].at for i in (0, -1)] == [0, count - 1]


def test_two_metrics_of_one_log_share_moments_wherever_they_are_thinned():
    one, other = Samples(), Samples()
    for i in range(20_000):
        one.add(Sample(float(i), float(i), math.sin(i)))
        other.add(Sample(float(i), float(i), math.cos(7 * i)))
    shared = sorted({each.at for each in one.all} & {each.at for each in other.all})
    assert max(b - a for a, b in pairwise(shared)) <= one.length
