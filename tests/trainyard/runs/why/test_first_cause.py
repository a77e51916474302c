"""Which of many lines is the first cause: among ranks, in a chain of exceptions, among words."""

import pytest

from trainyard.runs.why.diagnosis import Cause, diagnose
from trainyard.runs.why.logged_exceptions import Evidence, line

TRACEBACK = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 88, in main
    loss = model(batch)
  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1750, in _call
    return forward_call(*args, **kwargs)
{end}"""


def logged(log: str) -> Cause:
    rows = enumerate(log.splitlines(), 1)
    return diagnose(Evidence(step="", lines=tuple(line("algo-1", at, row) for at, row in rows)))


def test_the_first_exception_is_found_behind_those_of_all_other_ranks():
    """Their traces are no work that the machine did after it."""
    frames = '  File "/lib/python3/site-packages/torch/x.py", line 9, in g\n' * 30
    end = "torch.distributed.DistBackendError: NCCL error: remote process exited"
    other = f"Traceback (most recent call last):\n{frames}{end}"
    first = TRACEBACK.format(end="KeyError: 'x'")
    log = [f"[rank5]: {row}" for row in first.split("\n")]
    log += [f"[rank{rank}]: {row}" for rank in range(20) for row in other.split("\n")]
    cause = logged("\n".join(log))
    assert (cause.rank, cause.certainty) == (5, "certain")
    assert "train.py:88: KeyError: 'x'" in cause.sentence


CHAINED = "\n\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("OSError: [Errno 28] No space left on device", "A disk was full"),
        ("RuntimeError: training failed", "KeyError: 'a cache'"),
    ],
    ids=["a failure while the first was handled", "a word for the first"],
)
def test_of_an_exception_in_the_handling_of_another(second: str, says: str):
    log = TRACEBACK.format(end="KeyError: 'a cache'") + CHAINED + TRACEBACK.format(end=second)
    assert says in logged(log).sentence


@pytest.mark.parametrize(
    "end", ["cv2.error: (-215) empty", "socket.timeout: timed out", "struct.error: 4 bytes"]
)
def test_an_exception_of_a_lower_case_name_ends_a_traceback(end: str):
    assert f"train.py:88: {end}" in logged(TRACEBACK.format(end=end)).sentence


def test_an_exception_that_a_line_names_is_told():
    cause = logged("loading\nException: an odd argument 'x'")
    assert (cause.name, cause.certainty) == ("exception", "likely")
    assert "an odd argument 'x'" in cause.sentence


def test_a_line_that_states_a_failure_is_told_and_one_that_was_dealt_with_is_not():
    stated = "step 1\nthe tokenizer does not exist in the model's folder"
    assert (logged(stated).name, logged(stated).certainty) == ("error", "likely")
    dealt = "the tokenizer does not exist in the model's folder, using the default"
    assert logged(dealt).certainty == "unknown"


@pytest.mark.parametrize(
    "text",
    ["Rank 1 crashed with exit code 1.", "ERROR: There was an error in the training script."],
)
def test_that_something_failed_is_no_cause(text: str):
    assert logged(f"step 1\n{text}").certainty == "unknown"


def test_a_healthy_program_s_warning_of_its_files_is_no_cause():
    warning = "x.py:9: UserWarning: could not find a checkpoint, failed to load state dict"
    assert logged(f"{warning}\nstep 1").certainty == "unknown"
    assert logged("WARNING: [Errno 28] No space left on device").name == "memory/disk"


def test_the_very_words_of_one_cause_count_more_than_a_wording_of_another():
    text = "An error occurred (ValidationException) when calling the CreatePipeline operation: {}"
    cause = logged(text.format("Unable to parse pipeline definition. Expecting start of Json."))
    assert cause.name == "unnamed/request" and "Expecting start of Json" in cause.sentence
