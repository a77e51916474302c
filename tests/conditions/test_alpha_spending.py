"""All looks together spend α, and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.alpha_spending import REST, compute_significance_level
from trainyard.common.errors import GateError

ALPHAS = st.floats(1e-6, 0.2)


@given(ALPHAS, st.integers(1, 300))
def test_of_k_looks_less_than_alpha_is_spent(alpha: float, looks: int):
    used = sum(compute_significance_level(alpha, look) for look in range(1, looks + 1))
    assert used == pytest.approx(alpha * (1 - REST / looks)) and used < alpha


@given(ALPHAS, st.integers(1, 10**9))
def test_every_look_has_a_level_and_a_later_one_has_less(alpha: float, look: int):
    assert (
        0
        < compute_significance_level(alpha, look + 1)
        < compute_significance_level(alpha, look)
        < alpha
    )


@pytest.mark.parametrize(("alpha", "look"), [(0.05, 0), (0.05, -1), (0.0, 1), (1.0, 1)])
def test_what_is_no_look_and_no_level_is_refused(alpha: float, look: int):
    with pytest.raises(GateError, match="expected|first look"):
        compute_significance_level(alpha, look)
