"""The trainings of a search, in the order of their start and by their objective."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.run_report.run_panels import incumbents, over_seeds, rank_trials, round_value, trials

VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6))


def summary(job: str, value: float | None, status: str = "Completed", goal: str = "Minimize"):
    """Return a summary as ListTrainingJobsForHyperParameterTuningJob gives it."""
    final = {"Type": goal, "MetricName": "loss", "Value": value}
    return {
        "TrainingJobName": job,
        "TrainingJobStatus": status,
        "TunedHyperParameters": {"rate": "0.00123456"},
    } | ({} if value is None else {"FinalHyperParameterTuningJobObjectiveMetric": final})


@given(st.lists(VALUES, min_size=1), st.sampled_from(["Minimize", "Maximize"]))
def test_the_best_so_far_never_gets_worse_and_ends_with_the_first_in_rank(values, goal):
    found = trials(summary(str(n), value, goal=goal) for n, value in enumerate(values))
    best = [value for _, value in incumbents(found)]
    better = min if goal == "Minimize" else max
    known = [value for value in values if value is not None]
    assert best == [better(known[: n + 1]) for n in range(len(known))]
    if known:
        assert rank_trials(found)[0]["objective"] == best[-1]
    assert [one["objective"] for one in rank_trials(found)][len(known) :] == [None] * (
        len(values) - len(known)
    )


def test_a_stopped_training_is_never_the_best_so_far():
    found = trials([summary("a", 0.5), summary("b", 0.1, "Stopped"), summary("c", 0.4)])
    assert incumbents(found) == [(1, 0.5), (3, 0.4)]


def test_numbers_are_rounded_and_words_are_not():
    assert (round_value("0.00123456"), round_value("adamw"), round_value("3")) == (
        "0.001235",
        "adamw",
        "3",
    )


def test_several_seeds_have_a_mean_with_its_interval_and_other_searches_none():
    seeds = [summary(str(n), value) for n, value in enumerate((1.0, 2.0, 3.0))]
    assert over_seeds(trials(seeds)) is None
    for number, one in enumerate(seeds):
        one["TunedHyperParameters"] = {"seed": str(number)}
    # Student's t of 2 degrees of freedom: 4.3027; the standard error is 1 / √3
    assert str(over_seeds(trials(seeds))).startswith("2.0000 ± 2.4841 (95 % interval")
    assert over_seeds(trials(seeds[:1])) is None
