"""What an application adds to the terminal's view of its runs; ``watch`` alone shows any run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from trainyard.runs.execution import Execution, Step
from trainyard.runs.last_metrics import metrics_table

Steps = Mapping[str, Step]
"""The steps of an execution that have begun, by name."""


def _unknown(job: Mapping[str, Any]) -> tuple[float, float] | None:
    return None


def _nothing(execution: Execution, job: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """What stands in the terminal beside steps, times, failures and the model package."""

    watch: str = "trainyard watch"
    """The command that watches such a run."""
    tables: tuple[Callable[[Execution, Steps], RenderableType | None], ...] = (metrics_table,)
    """Tables of the summary, below the steps; None where there is nothing to show."""
    progress: Callable[[Mapping[str, Any]], tuple[float, float] | None] = _unknown
    """A training job as DescribeTrainingJob answers → (steps done, all steps); None: not known."""
    warns: Callable[[Execution, Mapping[str, Any]], str] = _nothing
    """A training job that runs → what is wrong with how it goes; empty where nothing is."""
