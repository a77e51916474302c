"""Logs that somebody has wrapped: their lines, and the exception in them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.runs.why.diagnosis import diagnose
from trainyard.runs.why.evidence import of_text
from trainyard.runs.why.unpacking import LONGEST_OBJECT, rows

TRACE = (
    'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 8, in main\n'
    "    step(batch)\nKeyError: 'label'"
)
WRAPPED = {
    "JSON": json.dumps({"level": "info", "msg": "epoch 1"})
    + "\n"
    + json.dumps({"level": "error", "msg": "failed", "exc_info": TRACE}),
    "HTML": TRACE.replace("'", "&#39;").replace('"', "&quot;").replace("\n", "<br>"),
    "a literal": TRACE.replace("\n", "\\n"),
    "one line": TRACE.replace("\n  ", " ").replace("\n", " ").replace("    ", " "),
    "a colour": TRACE.replace("KeyError", "\x1b[31mKeyError"),
    "Ray": "\n".join(f"(RayTrainWorker pid=31, ip=10.0.0.1) {row}" for row in TRACE.split("\n")),
    "a time and a rank": "\n".join(f"2026-01-01T00:00:00Z [rank3]: {x}" for x in TRACE.split("\n")),
    "a group": "  + Exception Group "
    + "\n  |".join(
        TRACE.replace("KeyError: 'label'", "ExceptionGroup: 1 sub-exception").split("\n")
    )
    + "\n  +-+---------------- 1 ----------------\n"
    + "\n".join(f"    | {row}" for row in TRACE.split("\n")),
}


@pytest.mark.parametrize("text", WRAPPED.values(), ids=WRAPPED)
def test_an_exception_is_read_out_of_what_wraps_it(text: str):
    assert "train.py:8: KeyError: 'label'" in diagnose(of_text(text)).sentence


@given(st.lists(st.text("ab [](){}:.'=<>/%0", max_size=40), min_size=2, max_size=9))
def test_a_text_that_nothing_wraps_keeps_its_lines(lines: list[str]):
    assert rows("\n".join(lines)) == "\n".join(lines).splitlines()


@given(st.text('{}[]":,a1\\', max_size=60))
def test_what_only_looks_like_json_is_a_line(text: str):
    assert "".join(rows("{" + text + "}\nx")).endswith("x")


def test_a_huge_object_is_left_as_it_is():
    row = json.dumps({"msg": "x" * LONGEST_OBJECT})
    assert rows(f"{row}\n{row}") == [row, row]


def test_of_an_object_its_level_message_and_error_are_a_line():
    row = json.dumps({"severity": "error", "message": "no image", "error": "denied", "n": 1})
    assert rows(f"{row}\n{row}") == ["ERROR: no image: denied"] * 2
