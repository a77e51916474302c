"""Few samples of many: the best are exact, spikes and gaps stay, the last is the last."""

import math
from itertools import pairwise

from trainyard.console.curves.samples import KEPT, Sample, Samples


def test_of_many_samples_few_stay_with_what_matters():
    samples, spike, gap = Samples(), 31_234, 45_678
    for i in range(100_000):
        value = 99.0 if i == spike else math.nan if i == gap else 1 + 1 / (i + 1)
        samples.add(Sample(float(i), float(i), value))
        assert len(samples.all) < 2 * KEPT
    assert samples.last == Sample(99_999.0, 99_999.0, 1 + 1 / 100_000)
    assert samples.highest == Sample(spike, spike, 99.0) and samples.highest in samples.all
    assert samples.lowest == samples.last
    assert samples.count == 100_000
    assert any(math.isnan(one.value) for one in samples.all)
    assert all(a.at < b.at for a, b in pairwise(samples.all))
