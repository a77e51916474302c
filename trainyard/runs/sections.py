"""Sections of a run's page: what an application shows there of its runs, in HTML.

A section names what it reads of a run, and makes HTML of it. ``METRICS`` stands in every page whose
application brings none of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape

from trainyard.runs.execution import Execution, Step
from trainyard.runs.metrics import training_metrics
from trainyard.runs.table import duration

Reader = Callable[[Execution, Mapping[str, Step]], Any]
"""(execution, its steps by name) → what a section shows of it; None where the run has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page."""

    reads: Mapping[str, Reader]
    """Name → how it is read. Sections that read the same name share what was read."""
    html: Callable[[Mapping[str, Any]], str]
    """What was read, by name → the section, empty where there is nothing to show."""


def read_sections(
    sections: Sequence[Section], execution: Execution, steps: Mapping[str, Step]
) -> tuple[str, ...]:
    """The HTML of each section of a run.

    Raises:
        ServiceError: AWS refused or cannot be reached.
    """
    readers = {name: read for section in sections for name, read in section.reads.items()}
    known = {name: read(execution, steps) for name, read in readers.items()}
    return tuple(section.html(known) for section in sections)


def templates(folder: Path, **filters: Callable[..., str]) -> Environment:
    """What fills the templates of ``folder``; whatever is filled in is escaped."""
    found = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"duration": duration, **filters}
    return found


def _metrics(known: Mapping[str, Any]) -> str:
    page = templates(Path(__file__).parent).get_template("metrics.html.j2")
    return page.render(known) if known["metrics"] else ""


METRICS = Section(reads={"metrics": training_metrics}, html=_metrics)
