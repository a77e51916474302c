"""A pipeline, its endpoint, a monitor that names what moved, and the next model: one loop."""

from pathlib import Path

import pytest

from benchmarks.whole_loop.rehearsal import find_faults, rehearse


@pytest.mark.sweep
def test_drift_is_named_and_a_new_model_comes_into_service_without_a_lost_request(tmp_path: Path):
    assert find_faults(rehearse(tmp_path / "aws")) == []
