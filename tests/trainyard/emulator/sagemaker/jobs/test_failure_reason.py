"""FailureReason: the cause first, never longer than SageMaker allows."""

import numpy as np
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.containers.cluster import Exit
from trainyard.emulator.sagemaker.jobs.failure_reason import LIMIT, OFFLINE, format_failure_reason

pytestmark = pytest.mark.long

DRIVER = "Traceback ...\nsubprocess.CalledProcessError: Command '['torchrun']' returned 1."
TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']


def of_one(message: str, log: list[str], status: int = 1) -> str:
    """Return the reason of a job of one node."""
    return format_failure_reason(Exit("algo-1", status), message, {"algo-1": log})


TOOLKIT = 'ExecuteUserScriptError:\nExitCode 1\nErrorMessage ""\nCommand "python train.py"'
SAID = [f"2026 sagemaker-training-toolkit ERROR {line}" for line in TOOLKIT.splitlines()]
MISSING = "ModuleNotFoundError: No module named 'sagemaker_containers'"
SHELL = ["one", "++ cat x", "cat: x: No such file", "", "An error occurred with exit code 1"]
BOOM = [*TRACEBACK, "[rank0]: ValueError: boom", "torch...ChildFailedError:", DRIVER]


@pytest.mark.parametrize(
    ("message", "log", "cause"),
    [
        ("DataError: the corpus is empty", ["ValueError: x"], "DataError: the corpus is empty"),
        (DRIVER, BOOM, "ValueError: boom"),  # drivers say nothing of the cause
        (TOOLKIT, [*TRACEBACK, MISSING, *SAID], MISSING),
        ("", SHELL, "one | cat: x: No such file"),  # without the shell's trace
    ],
)
def test_the_jobs_own_message_comes_first_then_the_exception_in_the_log(message, log, cause):
    assert of_one(message, log) == f"AlgorithmError: {cause}, exit code: 1"


def test_a_toolkit_that_says_what_was_raised_is_believed() -> None:
    said = TOOLKIT.replace('""', '"ValueError: boom"')
    assert "ValueError: boom" in of_one(said, [*TRACEBACK, MISSING, *SAID])


@pytest.mark.parametrize(
    ("of_peer", "cause"),
    [
        ("[rank1]: ValueError: bad batch", "ValueError: bad batch (algo-2)"),
        ("  traceback : Signal 9 (SIGKILL) received by PID 41", "received by PID 41 (algo-2)"),
    ],
)
def test_the_root_cause_beats_what_its_peers_say(of_peer: str, cause: str) -> None:
    gloo = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"
    logs = {"algo-1": [gloo], "algo-2": [of_peer]}
    assert cause in format_failure_reason(Exit("algo-1", 1), "", logs)


def test_frames_of_native_libraries_are_left_out_and_the_cause_is_whole() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    booster = xgboost.train({}, xgboost.DMatrix(rows, label=rows[:, 0]), 1)
    with pytest.raises(xgboost.core.XGBoostError) as failure:
        booster.predict(xgboost.DMatrix(rows[:, [0, 1, 2, 0]]), validate_features=False)
    text = str(failure.value)
    assert len([line for line in text.splitlines() if "[bt]" in line]) > 3
    got = format_failure_reason(Exit("algo-1", 1), f"AlgorithmError: {text}\n", {})
    cause = "(3 vs. 4) : Number of columns does not match number of features in booster."
    assert got.endswith(f"{cause}, exit code: 1")
    assert "Stack trace" not in got and ".so" not in got
    torch = [
        "RuntimeError: the cause",
        "Exception raised from check at /build/x.cpp:7 (most recent call first):",
        "frame #0: c10::Error::Error(c10::SourceLocation) + 0x9d (0x7f25 in /lib/libc10.so)",
        "<omitting python frames>",
        "frame #28: _start + 0x21 (0x561e in python)",
    ]
    expected = "AlgorithmError: RuntimeError: the cause, exit code: 1"
    assert format_failure_reason(Exit("algo-1", 1), "\n".join(torch), {}) == expected
    glibc = ["what(): the cause", "[rank0]: /lib/x86_64-linux-gnu/libc.so.6(+0x2724a) [0x7f25410]"]
    assert "AlgorithmError: what(): the cause, " in of_one("", glibc)


@pytest.mark.parametrize(
    ("node", "status", "said"),
    [
        ("algo-2", -9, "algo-2 was killed by signal 9 (SIGKILL), exit code: 137"),
        ("algo-1", 139, "algo-1 was killed by SIGSEGV, exit code: 139"),
        ("algo-1", 255, "AlgorithmError: x, exit code: 255"),
    ],
)
def test_signals_are_named(node: str, status: int, said: str) -> None:
    assert format_failure_reason(Exit(node, status), "x", {}).endswith(said)


@given(st.text(), st.lists(st.text()), st.integers(1, 255) | st.integers(-15, -1))
def test_never_longer_than_the_limit_and_always_with_the_exit_code(text, lines, status) -> None:
    got = of_one(text * 50, lines, status)
    assert len(got) <= LIMIT
    assert got.endswith(f"exit code: {status if status > 0 else 128 - status}")


def test_whoever_quotes_pip_the_hint_is_the_same() -> None:
    """Also for an exception in the log; no hint if jobs reach the internet."""
    pip = "ERROR: No matching distribution found for x==3"
    log = [pip, "builder.InstallError: pip said: " + pip]
    for written in ("", f"MyError: {pip}\n"):
        assert of_one(written, log).count(OFFLINE) == 1
        assert OFFLINE not in format_failure_reason(
            Exit("algo-1", 1), written, {"algo-1": log}, hint=""
        )
