"""The benchmark of checkpoints measures what it says; on next to nothing."""

from pathlib import Path

import pytest

from benchmarks.checkpoints.__main__ import is_wrong, summarize_act
from benchmarks.checkpoints.session import Act, run_acts

pytestmark = pytest.mark.sweep


@pytest.mark.slow
def test_two_ranks_save_and_one_resumes_and_reads_its_shard_once(tmp_path: Path):
    acts = [Act(name, tmp_path / name, 4e6, 4e5, saves=1) for name in ("ours", "DCP async")]
    found = run_acts(tmp_path, 2, acts)
    assert all(summarize_act(*pair)["stall"] > 0 for pair in zip(acts, found, strict=True))
    acts = [Act(act.contender, act.folder, 4e6, 4e5, loads=True, removes=True) for act in acts]
    rows = [summarize_act(*pair) for pair in zip(acts, run_acts(tmp_path, 1, acts), strict=True)]
    assert 1 <= rows[0]["over_shard"] < 1.1 and not is_wrong(rows)
    assert is_wrong([rows[0] | {"over_shard": 1.2}]) and is_wrong([rows[0] | {"right": False}])
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
