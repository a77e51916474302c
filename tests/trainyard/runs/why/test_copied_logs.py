"""However a log was copied, its cause stays."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.runs.why.diagnosis import diagnose
from trainyard.runs.why.logged_exceptions import of_text

LOG = """step 3 loss 2.31
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 12, in <module>
    batch = next(batches)
  File "/opt/ml/code/data.py", line 7, in read
    return row["label"]
KeyError: 'label'"""

DRESSES: dict[str, Callable[[str, int], str]] = {
    "carriage returns": lambda row, _: row + "\r",
    "an indentation": lambda row, _: "      " + row,
    "a thread's quotation": lambda row, _: f"> {row}",
    "CloudWatch's times": lambda row, n: f"2026-11-23T10:00:{n:02d}.123Z {row}",
    "a container's times": lambda row, n: f"[2026-11-23 10:00:{n:02d},123] {row}",
    "a rank": lambda row, _: f"[rank3]: {row}",
    "docker compose": lambda row, _: f"algo-1-x7k2_1  | {row}",
}


FULL = LOG.replace("KeyError: 'label'", "OSError: [Errno 28] No space left on device: 'x'")


@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES)
def test_a_dressed_log_has_the_cause_of_the_bare_one(dress: Callable[[str, int], str]):
    def told(log: str) -> str:
        rows = log.splitlines()
        return diagnose(of_text("\n".join(dress(row, n) for n, row in enumerate(rows)))).sentence

    assert "data.py:7: KeyError: 'label'" in told(LOG)
    assert told(FULL).startswith("A disk was full")


LINES = st.lists(st.text(st.characters(codec="utf-8"), max_size=200), max_size=40)


@given(before=LINES, after=LINES)
def test_any_text_has_an_answer(before: list[str], after: list[str]):
    told = diagnose(of_text("\n".join([*before, LOG, *after])))
    assert told.sentence and told.certainty in ("certain", "likely", "unknown")
