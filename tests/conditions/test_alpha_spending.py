"""All looks together spend α, and no more."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.alpha_spending import REST, significance_level
from conditions.check_table import Demands, defaults
from conditions.score_checks import judge
from tests.conditions.evidence import CHAMPION, Evidence
from trainyard.common.errors import GateError

ALPHAS = st.floats(1e-6, 0.2)


@given(ALPHAS, st.integers(1, 300))
def test_of_k_looks_less_than_alpha_is_spent(alpha: float, looks: int):
    used = sum(significance_level(alpha, look) for look in range(1, looks + 1))
    assert used == pytest.approx(alpha * (1 - REST / looks)) and used < alpha


@given(ALPHAS, st.integers(1, 10**9))
def test_every_look_has_a_level_and_a_later_one_has_less(alpha: float, look: int):
    assert 0 < significance_level(alpha, look + 1) < significance_level(alpha, look) < alpha


@pytest.mark.parametrize(("alpha", "look"), [(0.05, 0), (0.05, -1), (0.0, 1), (1.0, 1)])
def test_what_is_no_look_and_no_level_is_refused(alpha: float, look: int):
    with pytest.raises(GateError, match="expected|first look"):
        significance_level(alpha, look)


def test_a_later_look_takes_a_larger_improvement(tmp_path):
    """And the slices, which it takes proof to stop a model with, keep their level."""
    evidence = Evidence(improvement=0.04)
    inputs = evidence.write(tmp_path) / "processing/input/scores"
    wanted = Demands(
        values=defaults() | {"superiority": {"loss": 0.0}, "slice_regression": {"loss": 0.01}},
        directions={"loss": "lower"},
        champion=CHAMPION,
    )
    found = {
        look: judge(inputs, evidence.evaluation(), replace(wanted, look_number=look)).checks
        for look in (1, 2, 40)
    }
    lows = [
        check.low for checks in found.values() for check in checks if check.kind == "superiority"
    ]
    assert lows[0] > lows[1] > lows[2]
    assert len({[c for c in checks if c.slice][0] for checks in found.values()}) == 1
