"""A cause is certain where it is specific, the first, and ended the program; else it is likely."""

import pytest

from tests.trainyard.runs.why.test_diagnosis import DISK as FULL
from tests.trainyard.runs.why.test_diagnosis import logged, said
from trainyard.runs.why.diagnosis import AFTERWARDS


def traced(end: str, before: str = "") -> str:
    frame = '  File "/opt/ml/code/train.py", line 9, in <module>\n    save(path)'
    return f"{before}Traceback (most recent call last):\n{frame}\n{end}\n"


CERTAIN = {
    "an exception that ended the program": traced(FULL),
    "an exception of which no more is known": traced("KeyError: 'label'"),
    "a clean-up that follows": traced(FULL) + "cleaning\n" * AFTERWARDS,
    "the launcher's own end": traced(FULL) + "ChildFailedError: x\n",
    "the same again from another rank": traced(FULL) + traced(FULL),
}
LIKELY = {
    "an error before it": "ERROR:store:the bucket answered 500\n" + traced(FULL),
    "an exception before it": "TimeoutError: no answer\n" + traced(FULL),
    "another cause after it": traced(FULL) + traced("ModuleNotFoundError: No module named 'a'"),
    "another exception after it": traced("KeyError: 'label'") + traced("TypeError: x"),
    "a program that went on": traced(FULL) + "step 1\n" * (AFTERWARDS + 1),
    "a line that a script went on after": "tar: No space left on device\n" + "work\n" * 4,
    "what a warning is about": traced(FULL, "WARNING: the cache is not used\n"),
    "what is tried again": traced(FULL, "save failed, retrying\n"),
    "a thread": traced(FULL, "Exception in thread Thread-3:\n"),
    "what a message supposes": traced("RuntimeError: failed, perhaps No space left on device"),
    "what waits for another process": traced("Error: x").replace(
        "/opt/ml/code/train.py", "/lib/python3/site-packages/torch/multiprocessing/spawn.py"
    ),
    "words that nobody prints exactly": "RuntimeError: the disk is full\n",
    "a program that trains on": traced(FULL) + "epoch 2: loss 0.4\n",
    "a program that says it is done": traced(FULL) + "Training job completed\n",
    "what only tells of a failure elsewhere": traced("RuntimeError: training failed"),
    "an exception that another one was raised while it was handled": traced("KeyError: 'a'")
    + "\nDuring handling of the above exception, another exception occurred:\n\n"
    + traced("RuntimeError: b"),
    "an exit code": "worker 3 ended with exit code 139\n",
    "a thing that was none": traced("AttributeError: 'NoneType' object has no attribute 'sizes'"),
}


@pytest.mark.parametrize("log", CERTAIN.values(), ids=CERTAIN)
def test_a_cause_is_certain(log: str):
    assert logged(log).certainty == "certain"


@pytest.mark.parametrize("log", LIKELY.values(), ids=LIKELY)
def test_a_cause_is_no_more_than_likely(log: str):
    assert logged(log).certainty == "likely"


def test_what_python_ignores_is_no_cause():
    ignored = traced("TypeError: x", "Exception ignored in: <function Pool.__del__ at 0x7f>\n")
    assert "KeyError: 'label'" in logged(ignored + traced("KeyError: 'label'")).sentence
    called = traced("TypeError: x", "ERROR - Exception in callback <Nanny.memory_monitor>\n")
    assert "KeyError: 'label'" in logged(called + traced("KeyError: 'label'")).sentence


REASONS = {
    "AlgorithmError: framework error: \n" + traced(FULL): "likely",
    "AlgorithmError: the model is too large, exit code: 1": "likely",
    "AUC 0.4 is below 0.7": "certain",
    "CapacityError: x\nResourceLimitExceeded: y": "likely",
    "CapacityError: x": "certain",
}


@pytest.mark.parametrize(("reason", "certainty"), REASONS.items())
def test_what_the_service_quotes_or_says_of_two_things_is_likely(reason: str, certainty: str):
    assert said(reason).certainty == certainty


def test_a_message_is_read_on_where_its_first_line_only_opens_it_and_is_never_certain():
    assert logged(traced("RuntimeError:")).certainty == "unknown"  # it was cut off
    opened = traced("tensorflow.errors.AbortedError: Graph execution error:")
    cause = logged(f"{opened}\nABORTED: the queue was closed")
    assert cause.sentence.endswith("Graph execution error: ABORTED: the queue was closed")
    assert cause.certainty == "likely"
