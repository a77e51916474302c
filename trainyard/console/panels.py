"""What only an application knows of its runs, on the console's pages and in the report.

A panel names what it reads of a run, and makes HTML of it. ``METRICS`` stands on every page whose
application brings no panels of its own.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup

from trainyard.console.template_filters import FILTERS
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_display import training_metrics

Reader = Callable[[Execution, Mapping[str, Step]], Any]
"""(execution, its steps by name) → what a panel shows of it; None where the run has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of a run's page, and of others about it."""

    reads: Mapping[str, Reader]
    """Name → how it is read. Panels that read the same name share what was read."""

    html: Callable[[Mapping[str, Any]], str]
    """What was read, by name → the panel, empty where there is nothing to show. It has escaped what
    it did not write, and has no script and no ``style``, which the console forbids."""

    steps: tuple[str, ...] = ()
    """The names of the steps on whose pages it stands, too."""

    packages: bool = False
    """Whether it stands on the page of the model package, too, that the run registered."""


Panels = Sequence[Panel]


def of_step(panels: Panels, step: str) -> list[Panel]:
    """Those that stand on that step's page."""
    return [panel for panel in panels if step in panel.steps]


def of_packages(panels: Panels) -> list[Panel]:
    """Those that stand on the page of the package that a run registered."""
    return [panel for panel in panels if panel.packages]


def read_panels(
    panels: Iterable[Panel], execution: Execution, steps: Mapping[str, Step]
) -> tuple[Markup, ...]:
    """The HTML of each panel of a run.

    Raises:
        ServiceError: AWS refused or cannot be reached.
    """
    panels = tuple(panels)
    readers = {name: read for panel in panels for name, read in panel.reads.items()}
    known = {name: read(execution, steps) for name, read in readers.items()}
    return tuple(Markup(panel.html(known)) for panel in panels)  # which has escaped it


def templates(folder: Path, **filters: Callable[..., Any]) -> Environment:
    """What fills the templates of ``folder``; whatever is filled in is escaped.

    They have the console's filters, and ``image(description)``.
    """
    found = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {**FILTERS, "image": image, **filters}
    return found


def image(svg: str | None, description: str) -> Markup:
    """A picture that was drawn elsewhere, such as by matplotlib; empty where there is none.

    Inside of an ``img`` its styles do not count as the page's, which has none but its sheet's.
    """
    if not svg:
        return Markup()
    data = base64.b64encode(svg.encode()).decode()
    return Markup('<img class="picture" alt="{}" src="data:image/svg+xml;base64,{}">').format(
        description, data
    )


def _metrics(known: Mapping[str, Any]) -> str:
    page = templates(Path(__file__).with_name("templates")).get_template("metrics.html.j2")
    return page.render(known) if known["metrics"] else ""


METRICS = Panel(reads={"metrics": training_metrics}, html=_metrics)
