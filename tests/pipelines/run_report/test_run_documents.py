"""Tests of reading a training's documents."""

from datetime import UTC, datetime
from types import SimpleNamespace

from pipelines.run_report.training_pace import read_metrics
from trainyard.runs.execution import Step


def test_a_metrics_expression_means_what_it_means_to_jobs():
    """Its dialect differs from Python's; an invalid or slow one does not affect others."""
    regexes = {
        "f1": r"f1=(?<value>[0-9.]+)",
        "bad": "(",
        "slow": "word=((a|aa)+)$",
        "mae": "mae=([0-9.]+)",
    }
    given = [{"Name": name, "Regex": regex} for name, regex in regexes.items()]
    lines = ["f1=0.5 mae=3", f"word={'a' * 60}!", "f1=1.0 mae=nothing"]
    step = Step(
        name="Train",
        title="Train",
        status="Succeeded",
        started=datetime.now(UTC),
        ended=None,
        reason="",
        cached=False,
        metadata={"TrainingJob": {"Arn": "arn:aws:sagemaker:us-east-1:1:training-job/x"}},
    )
    service = SimpleNamespace(
        training_job=lambda name: {"AlgorithmSpecification": {"MetricDefinitions": given}},
        all_lines=lambda step: lines,
    )
    assert read_metrics(service, {"Train": step}) == {"f1": [0.5, 1.0], "mae": [3.0]}
