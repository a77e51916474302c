"""What our steps leave behind, read from a run: evaluation.json, gate.json, the metric lines."""

import re
from collections.abc import Iterable

from conditions.documents import Gate
from steps.evaluate.document import Evaluation
from trainyard.runs.display import Steps
from trainyard.runs.execution import Execution

PAIR = re.compile(r"(\w+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def read_gate(execution: Execution, steps: Steps) -> Gate | None:
    """gate.json; None where the run has none."""
    return execution.output_json(steps["Gate"], "gate", "gate.json") if "Gate" in steps else None


def read_evaluation(execution: Execution, steps: Steps) -> Evaluation | None:
    """evaluation.json; None where the run has none."""
    if "Evaluate" not in steps:
        return None
    return execution.output_json(steps["Evaluate"], "evaluation", "evaluation.json")


def read_training(execution: Execution, steps: Steps) -> list[dict[str, float]]:
    """The metric lines of the training job; see ``history``."""
    return history(execution.all_lines(steps["Train"])) if "Train" in steps else []


def read_metrics(execution: Execution, steps: Steps) -> dict[str, list[float]]:
    """Metric → its values in the order of the log, of a script of one's own; else none."""
    job = steps["Train"].job if "Train" in steps else None
    if job is None:
        return {}
    given = execution.training_job(job[1])["AlgorithmSpecification"].get("MetricDefinitions", ())
    regexes = {one["Name"]: re.compile(one["Regex"]) for one in given}
    if is_ours(regexes):
        return {}
    found: dict[str, list[float]] = {name: [] for name in regexes}
    for line in execution.all_lines(steps["Train"]):
        for name, regex in regexes.items():
            if (match := regex.search(line)) and (value := _number(match[1])) is not None:
                found[name].append(value)
    return {name: values for name, values in found.items() if values}


def is_ours(metrics: Iterable[str]) -> bool:
    """Whether a training job with such metrics runs Trainyard's loop."""
    return "train:step" in metrics


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # the service leaves it out, too
        return None


def history(lines: Iterable[str]) -> list[dict[str, float]]:
    """The metric lines among a training job's log lines: those that begin with ``step=``.

    Each is name → value. A step that a resumed job logged twice counts once, as it was logged last.
    """
    found: dict[tuple[float, frozenset[str]], dict[str, float]] = {}
    for line in lines:
        if line.startswith("step="):
            metrics = {name: float(value) for name, value in PAIR.findall(line)}
            found[metrics["step"], frozenset(metrics)] = metrics
    return sorted(found.values(), key=lambda metrics: metrics["step"])
