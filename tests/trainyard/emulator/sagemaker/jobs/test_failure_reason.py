"""FailureReason: the cause first, never longer than SageMaker allows."""

import numpy as np
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.containers.cluster import Exit
from trainyard.emulator.sagemaker.jobs.failure_reason import LIMIT, OFFLINE, reason

pytestmark = pytest.mark.long

DRIVER = "Traceback ...\nsubprocess.CalledProcessError: Command '['torchrun']' returned 1."
TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']


def test_the_jobs_own_message_comes_first() -> None:
    got = reason(Exit("algo-1", 1), "DataError: the corpus is empty", {"algo-1": ["ValueError: x"]})
    assert got == "AlgorithmError: DataError: the corpus is empty, exit code: 1"


def test_a_drivers_message_gives_way_to_the_exception_in_the_log() -> None:
    log = [*TRACEBACK, "[rank0]: ValueError: boom", "torch...ChildFailedError:", DRIVER]
    got = reason(Exit("algo-1", 1), DRIVER, {"algo-1": log})
    assert got == "AlgorithmError: ValueError: boom, exit code: 1"


def test_a_toolkit_that_says_nothing_gives_way_to_the_exception_in_the_log() -> None:
    toolkit = 'ExecuteUserScriptError:\nExitCode 1\nErrorMessage ""\nCommand "python train.py"'
    log = [*TRACEBACK, "ModuleNotFoundError: No module named 'sagemaker_containers'"]
    log += [f"2026 sagemaker-training-toolkit ERROR {line}" for line in toolkit.splitlines()]
    got = reason(Exit("algo-1", 1), toolkit, {"algo-1": log})
    assert "ModuleNotFoundError: No module named 'sagemaker_containers', exit code: 1" in got
    said = toolkit.replace('""', '"ValueError: boom"')
    assert "ValueError: boom" in reason(Exit("algo-1", 1), said, {"algo-1": log})


def test_the_root_cause_beats_what_its_peers_say() -> None:
    logs = {
        "algo-1": ["RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"],
        "algo-2": ["[rank1]: ValueError: bad batch"],
    }
    assert "ValueError: bad batch (algo-2)" in reason(Exit("algo-1", 1), "", logs)


def test_a_killed_worker_is_named_by_torchruns_report() -> None:
    logs = {
        "algo-1": ["RuntimeError: gloo"],
        "algo-2": ["  traceback : Signal 9 (SIGKILL) received by PID 41"],
    }
    assert "Signal 9 (SIGKILL) received by PID 41 (algo-2)" in reason(Exit("algo-1", 1), "", logs)


def test_without_an_exception_the_last_lines_without_the_shells_trace() -> None:
    log = ["one", "++ cat x", "cat: x: No such file", "", "An error occurred with exit code 1"]
    assert reason(Exit("algo-1", 2), "", {"algo-1": log}).startswith(
        "AlgorithmError: one | cat: x: No such file, "
    )


def test_frames_of_native_libraries_are_left_out_and_the_cause_is_whole() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    booster = xgboost.train({}, xgboost.DMatrix(rows, label=rows[:, 0]), 1)
    with pytest.raises(xgboost.core.XGBoostError) as failure:
        booster.predict(xgboost.DMatrix(rows[:, [0, 1, 2, 0]]), validate_features=False)
    text = str(failure.value)
    assert len([line for line in text.splitlines() if "[bt]" in line]) > 3
    got = reason(Exit("algo-1", 1), f"AlgorithmError: {text}\n", {})
    assert got.endswith(
        "(3 vs. 4) : Number of columns does not match number of features in booster., exit code: 1"
    )
    assert "Stack trace" not in got
    assert ".so" not in got
    torch = [
        "RuntimeError: the cause",
        "Exception raised from check at /build/x.cpp:7 (most recent call first):",
        "frame #0: c10::Error::Error(c10::SourceLocation) + 0x9d (0x7f25 in /lib/libc10.so)",
        "<omitting python frames>",
        "frame #28: _start + 0x21 (0x561e in python)",
    ]
    expected = "AlgorithmError: RuntimeError: the cause, exit code: 1"
    assert reason(Exit("algo-1", 1), "\n".join(torch), {}) == expected
    glibc = ["what(): the cause", "[rank0]: /lib/x86_64-linux-gnu/libc.so.6(+0x2724a) [0x7f25410]"]
    assert "AlgorithmError: what(): the cause, " in reason(Exit("algo-1", 1), "", {"algo-1": glibc})


def test_signals_are_named() -> None:
    assert reason(Exit("algo-2", -9), "", {}).endswith(
        "algo-2 was killed by signal 9 (SIGKILL), exit code: 137"
    )
    assert "algo-1 was killed by SIGSEGV, exit code: 139" in reason(Exit("algo-1", 139), "", {})
    assert reason(Exit("algo-1", 255), "x", {}) == "AlgorithmError: x, exit code: 255"


@given(st.text(), st.lists(st.text()), st.integers(1, 255) | st.integers(-15, -1))
def test_never_longer_than_the_limit_and_always_with_the_exit_code(text, lines, status) -> None:
    got = reason(Exit("algo-1", status), text * 50, {"algo-1": lines})
    assert len(got) <= LIMIT
    assert got.endswith(f"exit code: {status if status > 0 else 128 - status}")


def test_whoever_quotes_pip_the_hint_is_the_same() -> None:
    """Also for an exception in the log; no hint if jobs reach the internet."""
    pip = "ERROR: No matching distribution found for x==3"
    log = [pip, "builder.InstallError: pip said: " + pip]
    for written in ("", f"MyError: {pip}\n"):
        assert reason(Exit("algo-1", 1), written, {"algo-1": log}).count(OFFLINE) == 1
        assert OFFLINE not in reason(Exit("algo-1", 1), written, {"algo-1": log}, hint="")
