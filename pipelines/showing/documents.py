"""What our steps leave behind, read from a run: evaluation.json, gate.json, the metric lines."""

import re
from collections.abc import Iterable

from conditions.documents import Gate
from steps.evaluate.document import Evaluation
from trainyard.runs.display import Steps
from trainyard.runs.execution import Execution
from trainyard.runs.metric_lines import definitions, found

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
    known = definitions(execution.training_job(job[1]))
    if is_ours(one.name for one in known):
        return {}
    values: dict[str, list[float]] = {one.name: [] for one in known}
    for line in execution.all_lines(steps["Train"]):
        if one := found(known, line):
            for name, value in one.values.items():
                values[name].append(value)
    return {name: some for name, some in values.items() if some}


def is_ours(metrics: Iterable[str]) -> bool:
    """Whether a training job with such metrics runs Trainyard's loop."""
    return "train:step" in metrics


def history(lines: Iterable[str]) -> list[dict[str, float]]:
    """The metric lines among a training job's log lines: those that begin with ``step=``.

    Each is name → value. A step that a resumed job logged twice counts once, as it was logged last.
    """
    kept: dict[tuple[float, frozenset[str]], dict[str, float]] = {}
    for line in lines:
        if line.startswith("step="):
            metrics = {name: float(value) for name, value in PAIR.findall(line)}
            kept[metrics["step"], frozenset(metrics)] = metrics
    return sorted(kept.values(), key=lambda metrics: metrics["step"])
