"""One self-contained page about a run: its sections, and when each step ran."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.common import whole_file
from trainyard.runs import plots
from trainyard.runs.execution import Execution, Step
from trainyard.runs.sections import METRICS, Section, read_sections, templates
from trainyard.runs.summary import model_package


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that the page shows."""

    described: dict[str, Any]
    """DescribePipelineExecution's answer."""
    steps: list[Step]
    package: str | None
    """ARN of the model package that the run registered."""
    sections: tuple[str, ...] = ()
    """HTML of what stands between the page's head and the steps."""


def read_run(execution: Execution, sections: Sequence[Section] = (METRICS,)) -> Run:
    """Ask the service for everything; parts that the run never reached are None or empty.

    Raises:
        ServiceError: there is no such execution, or AWS cannot be reached.
    """
    steps = execution.steps()
    return Run(
        described=execution.describe(),
        steps=steps,
        package=model_package(steps),
        sections=read_sections(sections, execution, {step.name: step for step in steps}),
    )


def render(run: Run) -> str:
    """The page, as one HTML document that needs nothing else."""
    page = templates(Path(__file__).parent).get_template("report.html.j2")
    return page.render(run=run, timeline=plots.timeline(run.steps) or "")


def write(run: Run, out: Path) -> None:
    """Write the page to ``out``; never half of it."""
    whole_file.write(out, render(run))
