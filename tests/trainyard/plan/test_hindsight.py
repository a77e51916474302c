"""Why a step ran, and was not answered from the cache: by executions that were."""

from datetime import UTC, datetime, timedelta

import pytest

from trainyard.plan.hindsight import why_it_ran
from trainyard.plan.history import History, Run, StepRun

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ARN = "arn:aws:sagemaker:us-east-1:123456789012:pipeline/p/execution/"
CACHE = {"Enabled": True, "ExpireAfter": "P1D"}


def run(number: int, hours: float, cache: dict | None = CACHE, **made: str) -> Run:
    """An execution that began so many hours before noon, and whose Train succeeded then."""
    began = NOON - timedelta(hours=hours)
    step = {
        "Name": "Train",
        "Type": made.pop("type", "Training"),
        "Arguments": {
            "HyperParameters": {"lr": made.get("lr", "1"), "api_key": made.get("key", "a-secret")},
            "InputDataConfig": [{"ChannelName": "x", "S3Uri": {"Get": "Steps.Prepare.Uri"}}],
        },
    }
    document = {"Steps": [step | ({"CacheConfig": cache} if cache is not None else {})]}
    done = StepRun(started=began, ended=began, source=None, job="j")
    steps = {
        "Train": done,
        "Prepare": StepRun(started=began, ended=began, source=ARN + "0", job=""),
    }
    return Run(arn=ARN + str(number), started=began, document=document, parameters={}, steps=steps)


def history(now: Run, *earlier: Run) -> History:
    """What was read of the executions before ``now``."""
    found = History(None, None)
    found.runs = list(earlier)
    found._by_arn = {one.arn: one for one in (now, *earlier, run(0, 99))}
    return found


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (run(9, 0, cache=None), "the step has no CacheConfig"),
        (run(9, 0, cache={"Enabled": False}), "CacheConfig.Enabled is false"),
        (run(9, 0, type="Model"), "caches no steps of type Model"),
        (run(9, 0, type="Lambda"), "of type Lambda is not documented"),
        (run(9, 0), "There was no execution before"),
    ],
)
def test_what_is_never_answered_from_the_cache_says_why(now: Run, said: str):
    assert said in why_it_ran(now.arn, "Train", NOON, history(now)).why


def test_the_nearest_earlier_success_tells_what_differs_and_hides_secrets():
    now, near, far = run(9, 0, lr="3", key="new-secret"), run(8, 1, lr="2"), run(7, 2, lr="1")
    found = why_it_ran(now.arn, "Train", NOON, history(now, near, far))
    assert found.nearest == near
    told = {change.path: (change.old, change.new) for change in found.changes}
    assert told["HyperParameters.lr"] == ("2", "3")
    assert "secret" not in str(told.values())
    assert [path for path in told if path.startswith("InputDataConfig")] == []  # the same result


def test_a_result_that_is_too_old_is_not_taken():
    now, old = run(9, 0), run(8, 30)
    found = why_it_ran(now.arn, "Train", NOON, history(now, old))
    assert found.why == "Expired: the result is of 2026-11-21 06:00 UTC, the cache keeps P1D."
    assert found.nearest == old


def test_where_nothing_differs_nothing_is_made_up():
    now, same = run(9, 0), run(8, 1)
    found = why_it_ran(now.arn, "Train", NOON, history(now, same))
    assert "had the same key" in found.why and found.changes == ()
    assert "no step of this name" in why_it_ran(now.arn, "Other", NOON, history(now)).why
