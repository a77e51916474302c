"""What stopping trainings early saved."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipelines.advice.training_setting import sum_savings

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def training(status: str, seconds: float) -> dict:
    ended = NOON + timedelta(seconds=seconds)
    return {"TrainingJobStatus": status, "TrainingStartTime": NOON, "TrainingEndTime": ended}


def test_what_was_stopped_is_compared_with_the_median_of_the_whole_trainings():
    whole = [training("Completed", seconds) for seconds in (90, 100, 300)]
    stopped = [training("Stopped", 30), training("Stopped", 120)]
    failed = [training("Failed", 5), {"TrainingJobStatus": "Stopped"}]
    assert sum_savings([*whole, *stopped, *failed]) == (2, 70)


def test_without_a_whole_training_nothing_is_claimed():
    assert sum_savings([training("Stopped", 30)]) == (1, 0)
    assert sum_savings([]) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from(["Completed", "Stopped"]), st.integers(0, 1000))))
def test_no_more_is_saved_than_all_stopped_trainings_would_have_taken(found):
    whole = [seconds for status, seconds in found if status == "Completed"]
    stopped, seconds = sum_savings([training(*one) for one in found])
    assert 0 <= seconds <= stopped * max(whole, default=0)
