from hypothesis import given
from hypothesis import strategies as st

from trainyard.foresight.interval import Spread

FIGURES = st.floats(1e-6, 1e9)


@given(FIGURES, st.floats(0.1, 1), st.floats(1, 10), FIGURES)
def test_deciles_stay_in_their_order(value: float, low: float, high: float, factor: float):
    spread = Spread.around(value, low, high)
    for each in (spread, spread.times(factor), spread.inverse(factor)):
        assert each.p10 <= each.p50 <= each.p90
