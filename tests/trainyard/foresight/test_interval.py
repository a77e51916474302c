from math import inf
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.foresight.interval import Spread

FIGURES = st.floats(1e-6, 1e9)


@given(FIGURES, st.floats(0.1, 1), st.floats(1, 10), FIGURES)
def test_deciles_stay_in_their_order(value: float, low: float, high: float, factor: float):
    spread = Spread.from_median(value, low, high)
    for each in (spread, spread.scale(factor), spread.invert(factor)):
        assert each.p10 <= each.p50 <= each.p90


@given(FIGURES, st.floats(0, 0.99), st.floats(1, 10))
def test_values_drawn_from_a_spread_have_its_deciles(value: float, low: float, high: float):
    spread = Spread.from_median(value, low, high)
    normal = NormalDist()
    drawn = Spread.from_values(
        spread.get_quantile(normal.inv_cdf((place + 0.5) / 1001)) for place in range(1001)
    )
    for name in ("p10", "p50", "p90"):
        assert getattr(drawn, name) == pytest.approx(
            getattr(spread, name), rel=0.05, abs=value * 0.02
        )


def test_a_tenth_may_be_infinite():
    assert Spread.from_values([1, 2, 3, 4, 5, 6, 7, 8, inf, inf]) == Spread(1, 5, inf)
