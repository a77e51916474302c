"""What is drawn of the runs' metrics, and how the axis is called."""

import pytest

from trainyard.console.comparison import plots
from trainyard.console.comparison.sides import Side
from trainyard.console.comparison.works import Work
from trainyard.console.curves.samples import Sample, Samples
from trainyard.language.steps import Step as Declared
from trainyard.runs.comparing.places import Places
from trainyard.runs.execution import Step

DECLARED = ["train:logloss", "validation:loss", "train:rmse"]


def side(*measured: str) -> Side:
    """A run whose training declares ``DECLARED`` and of which the service knows those values."""
    job = {
        "AlgorithmSpecification": {"MetricDefinitions": [{"Name": name} for name in DECLARED]},
        "FinalMetricDataList": [{"MetricName": name} for name in measured],
    }
    told = {"title": "Train", "started": None, "ended": None, "reason": "", "cached": False}
    metadata = {"TrainingJob": {"Arn": "arn:aws:sagemaker:us-east-1:1:training-job/x"}}
    work = Work(
        declared=Declared(path="", name="Train", type="Training", arguments={}, document={}),
        step=Step(name="Train", status="Succeeded", metadata=metadata, **told),
        job=job,
        places=Places({}, {}, frozenset()),
        group={},
    )
    return Side(name="p/x", works={"Train": work})


@pytest.mark.parametrize(
    ("measured", "drawn"),
    [
        ((), "Train.train:logloss"),
        (("train:rmse",), "Train.train:rmse"),
        (("train:rmse", "validation:loss"), "Train.validation:loss"),
    ],
)
def test_unasked_a_loss_is_drawn_of_which_there_is_a_value(measured: tuple[str, ...], drawn: str):
    assert plots.wanted([side(), side(*measured)], ()) == (drawn,)


@pytest.mark.parametrize(
    ("counters", "axis"),
    [
        (("round", "round"), "round"),
        (("round", "epoch"), "step"),
        (("", ""), "value"),
    ],
)
def test_the_axis_says_what_the_runs_count(counters: tuple[str, ...], axis: str):
    samples = Samples()
    samples.add(Sample(1.0, 1.0, 0.5))
    curve = plots.Curve("Train.loss", (samples, samples), ("log", "log"), counters, ((), ()))
    assert f">{axis}</text>" in plots.plot(0, curve, "step")


def test_a_curve_without_any_value_is_said_to_have_none():
    curve = plots.Curve("Train.logloss", (None, None), ("log", "log"), ("", ""), ((), ()))
    assert plots.notes([curve]) == ["No run has a value of Train.logloss."]


def test_values_without_a_step_are_drawn_at_their_place_in_the_log():
    samples = Samples()
    for i in range(50_000):
        samples.add(Sample(float(i), None, float(i)))
    curve = plots.Curve("Train.loss", (samples,), ("log",), ("",), ((),))
    assert "highest 49,999 at value 49,999." in plots.plot(0, curve, "step")
