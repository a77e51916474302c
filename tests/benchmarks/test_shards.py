"""The benchmark of shards runs, at a size at which its figures mean nothing, and without peers."""

import json
from pathlib import Path

import pytest

from benchmarks.harness import Figure, Target
from benchmarks.shards.contenders import iter_readers

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_every_section_runs_and_its_figures_are_written(run_python, tmp_path: Path):
    sections = ["--only", "write,read,resume"]
    arguments = ["--quick", "--no-peers", "--rounds", "1", *sections]
    outputs = ["--json", str(tmp_path / "figures.json")]
    done = run_python("-m", "benchmarks.shards", *arguments, *outputs)
    assert not done.returncode, done.stdout + done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert not figures["setting"]["not_measured"]
    assert figures["sections"]["resume"]["ours"]["exact"]
    assert figures["sections"]["read"]["ours"]["shuffled"]["median"] > 0
    assert figures["sections"]["write"]["raw"]["median"] > 0
    assert len(figures["targets"]) == 4
    assert figures["sections"]["read"]["data_loader"]["in order"]["median"] > 0
    assert figures["machine"]["cores"] and figures["versions"]["torch"]


def test_a_ratio_is_taken_round_by_round_and_a_target_is_held_against_the_median():
    """The machine was twice as slow in the second round, for both."""
    ratio = Figure((10.0, 5.0, 12.0)).divide_by(Figure((20.0, 10.0, 20.0)))
    assert ratio.rounds == (0.5, 0.5, 0.6)
    assert (ratio.median, ratio.low, ratio.high) == (0.5, 0.5, 0.6)
    for sign, met in (("≥", True), ("≤", False)):
        assert Target("", Figure((0.1, 2.0, 3.0)), sign, 1.5).is_met is met
    # the state is asked for before the batch that follows is read
    assert [read() for read in iter_readers(iter(range(100)), [3, 4, 10])] == [3, 4, 10]
