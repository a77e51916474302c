"""What `why` says of failures that are known, and that the judge sees what is wrong."""

from pathlib import Path

import pytest

from benchmarks.why.__main__ import counts, judge, run
from benchmarks.why.failures import FAILURES
from trainyard.runs.why.diagnosis import Cause

pytestmark = pytest.mark.long

CHEAP = ("killed", "disk", "time", "argument", "capacity", "input", "function", "callback", "json")
"""Those that import no torch."""


@pytest.mark.slow
def test_steps_that_really_fail_have_their_cause(tmp_path: Path) -> None:
    found = list(run(tmp_path, CHEAP))
    assert {one.name for one in found} == {*CHEAP}
    assert [(one.name, one.cause) for one in found if one.verdict != "right"] == []


def test_thirty_kinds_really_fail() -> None:
    assert len({one.kind for one in FAILURES.values()}) == len(FAILURES) >= 30


@pytest.mark.parametrize(
    ("name", "certainty", "verdict"),
    [
        ("memory/gpu", "certain", "right"),
        ("memory/disk", "certain", "wrong and certain"),
        ("memory/disk", "likely", "wrong"),
        ("ranks/launcher", "unknown", "unknown"),
    ],
)
def test_a_wrong_cause_counts_as_such(name: str, certainty, verdict: str) -> None:
    cause = Cause(step="", name=name, sentence="x", certainty=certainty)
    one = judge("f", "s", ["memory/gpu"], cause)
    assert one.verdict == verdict
    assert counts([one])["right"] == (verdict == "right")
    assert judge("f", "s", ["memory/gpu"], cause, says="rank 3").verdict != "right"
