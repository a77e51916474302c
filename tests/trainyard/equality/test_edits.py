"""Fifty seeded differences and fifty seeded rewrites, each executed."""

from pathlib import Path

import pytest

from tests.trainyard.equality.edits import asked, prepared

pytestmark = pytest.mark.sweep


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_no_difference_is_missed_and_no_rewrite_is_taken_for_one(seed: int, tmp_path: Path):
    files = prepared(tmp_path)
    assert asked(seed, "differences", files, static=False)[0].cause
    answer, names = asked(seed, "rewrites", files, static=False)
    assert not answer.cause, names
