"""A cause is certain where it is specific, the first, and ended the program; else it is likely."""

import pytest

from tests.trainyard.runs.why.test_diagnosis import DISK as FULL
from tests.trainyard.runs.why.test_diagnosis import diagnose_machine_logs, diagnose_reason
from trainyard.runs.why.diagnosis import WORK_AFTER_EXCEPTION


def make_traceback(end: str, before: str = "") -> str:
    frame = '  File "/opt/ml/code/train.py", line 9, in <module>\n    save(path)'
    return f"{before}Traceback (most recent call last):\n{frame}\n{end}\n"


CERTAIN = {
    "an exception that ended the program": make_traceback(FULL),
    "an exception of which no more is known": make_traceback("KeyError: 'label'"),
    "a clean-up that follows": make_traceback(FULL) + "cleaning\n" * WORK_AFTER_EXCEPTION,
    "the launcher's own end": make_traceback(FULL) + "ChildFailedError: x\n",
    "the same again from another rank": make_traceback(FULL) + make_traceback(FULL),
}
LIKELY = {
    "an error before it": "ERROR:store:the bucket answered 500\n" + make_traceback(FULL),
    "an exception before it": "TimeoutError: no answer\n" + make_traceback(FULL),
    "another cause after it": make_traceback(FULL)
    + make_traceback("ModuleNotFoundError: No module named 'a'"),
    "another exception after it": make_traceback("KeyError: 'label'")
    + make_traceback("TypeError: x"),
    "a program that went on": make_traceback(FULL) + "step 1\n" * (WORK_AFTER_EXCEPTION + 1),
    "a line that a script went on after": "tar: No space left on device\n" + "work\n" * 4,
    "what a warning is about": make_traceback(FULL, "WARNING: the cache is not used\n"),
    "what is tried again": make_traceback(FULL, "save failed, retrying\n"),
    "a thread": make_traceback(FULL, "Exception in thread Thread-3:\n"),
    "what a message supposes": make_traceback(
        "RuntimeError: failed, perhaps No space left on device"
    ),
    "what waits for another process": make_traceback("Error: x").replace(
        "/opt/ml/code/train.py", "/lib/python3/site-packages/torch/multiprocessing/spawn.py"
    ),
    "words that nobody prints exactly": "RuntimeError: the disk is full\n",
    "a program that trains on": make_traceback(FULL) + "epoch 2: loss 0.4\n",
    "a program that says it is done": make_traceback(FULL) + "Training job completed\n",
    "what only tells of a failure elsewhere": make_traceback("RuntimeError: training failed"),
    "an exception that another one was raised while it was handled": make_traceback("KeyError: 'a'")
    + "\nDuring handling of the above exception, another exception occurred:\n\n"
    + make_traceback("RuntimeError: b"),
    "an exit code": "worker 3 ended with exit code 139\n",
    "a thing that was none": make_traceback(
        "AttributeError: 'NoneType' object has no attribute 'sizes'"
    ),
}


@pytest.mark.parametrize("log", CERTAIN.values(), ids=CERTAIN)
def test_a_cause_is_certain(log: str):
    assert diagnose_machine_logs(log).certainty == "certain"


@pytest.mark.parametrize("log", LIKELY.values(), ids=LIKELY)
def test_a_cause_is_no_more_than_likely(log: str):
    assert diagnose_machine_logs(log).certainty == "likely"


def test_what_python_ignores_is_no_cause():
    ignored = make_traceback(
        "TypeError: x", "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
    )
    assert (
        "KeyError: 'label'"
        in diagnose_machine_logs(ignored + make_traceback("KeyError: 'label'")).sentence
    )
    called = make_traceback(
        "TypeError: x", "ERROR - Exception in callback <Nanny.memory_monitor>\n"
    )
    assert (
        "KeyError: 'label'"
        in diagnose_machine_logs(called + make_traceback("KeyError: 'label'")).sentence
    )


REASONS = {
    "AlgorithmError: framework error: \n" + make_traceback(FULL): "likely",
    "AlgorithmError: the model is too large, exit code: 1": "likely",
    "AUC 0.4 is below 0.7": "certain",
    "CapacityError: x\nResourceLimitExceeded: y": "likely",
    "CapacityError: x": "certain",
}


@pytest.mark.parametrize(("reason", "certainty"), REASONS.items())
def test_what_the_service_quotes_or_says_of_two_things_is_likely(reason: str, certainty: str):
    assert diagnose_reason(reason).certainty == certainty


def test_a_message_is_read_on_where_its_first_line_only_opens_it_and_is_never_certain():
    assert (
        diagnose_machine_logs(make_traceback("RuntimeError:")).certainty == "unknown"
    )  # it was cut off
    opened = make_traceback("tensorflow.errors.AbortedError: Graph execution error:")
    cause = diagnose_machine_logs(f"{opened}\nABORTED: the queue was closed")
    assert cause.sentence.endswith("Graph execution error: ABORTED: the queue was closed")
    assert cause.certainty == "likely"
