"""Fifty seeded differences and fifty seeded rewrites, each executed."""

from pathlib import Path

import pytest

from tests.trainyard.equality.edits import decide_edited_equality, write_input_files

pytestmark = pytest.mark.sweep


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_no_difference_is_missed_and_no_rewrite_is_taken_for_one(seed: int, tmp_path: Path):
    files = write_input_files(tmp_path)
    assert decide_edited_equality(seed, "differences", files, static=False)[0].cause
    answer, names = decide_edited_equality(seed, "rewrites", files, static=False)
    assert not answer.cause, names
