"""One commit, upserted from several clones, is one definition; a comment changes who carries it."""

from pathlib import Path

import pytest

from benchmarks.clones import CHANGES, carriers, one_definition, upsert
from trainyard.emulator.server import serve

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_the_second_clone_has_nothing_to_do_and_a_comment_changes_only_who_carries_it(
    tmp_path: Path,
):
    with serve(state=tmp_path / "aws") as endpoint:
        first, second = (upsert(tmp_path, number, endpoint) for number in range(2))
    assert one_definition([first, second])
    assert first.uploaded_bytes > 0
    file = "steps/evaluate/job.py"
    assert carriers(tmp_path / second.clone, file) == CHANGES[file] == {"Evaluate"}
