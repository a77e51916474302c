"""Extension points for an application: panels on the pages and in the report, actions, outcomes.

A panel declares what it reads of an execution, and renders it as HTML. The panel ``METRICS`` is
used if the application has no panels of its own.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from flask import current_app
from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup

from trainyard.console.outcomes import FILTERS, Judge, defer_judgement
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_display import read_training_metrics

Reader = Callable[[Execution, Mapping[str, Step]], Any]
"""Function from (execution, its steps by name) to data for a panel, or None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of an execution's page, and of related pages."""

    reads: Mapping[str, Reader]
    """Name of the data to the function that reads them. Panels with the same name share them."""

    html: Callable[[Mapping[str, Any]], str]
    """Function from the data by name to the panel's HTML, empty if there is nothing to show. The
    HTML must be escaped, and must not contain a script or ``style``, which the console forbids."""

    steps: tuple[str, ...] = ()  # names of the steps whose pages also have the panel
    in_file: bool = False
    """True if only the report has the panel, because on pages the browser draws such curves."""

    packages: bool = False
    """True if the panel is also on the page of the model package that the execution registered."""


Panels = Sequence[Panel]


def render_panels(
    panels: Iterable[Panel], execution: Execution, steps: Mapping[str, Step]
) -> tuple[Markup, ...]:
    """Return the HTML of each panel of an execution."""
    panels = tuple(panels)
    readers = {name: read for panel in panels for name, read in panel.reads.items()}
    readings = {name: read(execution, steps) for name, read in readers.items()}
    # Each panel has escaped its own HTML.
    return tuple(Markup(panel.html(readings)) for panel in panels)


def create_environment(folder: Path, **filters: Callable[..., Any]) -> Environment:
    """Return a Jinja environment for the templates in ``folder``; inserted values are escaped.

    It has the console's filters, and the filter ``image(description)``, which is :func:`embed_svg`.
    """
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {**FILTERS, "image": embed_svg, **filters}
    return environment


def embed_svg(svg: str | None, description: str) -> Markup:
    """Return an ``img`` element with an SVG picture, such as matplotlib's; empty without one.

    The picture is in an ``img`` so that its styles are allowed: the page itself allows only its own
    style sheet.
    """
    if not svg:
        return Markup()
    data = base64.b64encode(svg.encode()).decode()
    return Markup('<img class="picture" alt="{}" src="data:image/svg+xml;base64,{}">').format(
        description, data
    )


def _render_metrics(readings: Mapping[str, Any]) -> str:
    page = create_environment(Path(__file__).with_name("templates")).get_template("metrics.html.j2")
    return page.render(readings) if readings["metrics"] else ""


METRICS = Panel(reads={"metrics": read_training_metrics}, html=_render_metrics)


Description = Mapping[str, Any]
"""AWS's description of the resource that an action is about, such as the response of
DescribeModelPackage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An action that an application executes on its own resources, by its own rules."""

    action: str
    owns: Callable[[Description], bool]
    says: Callable[[Description], Sequence[str]]
    """Returns sentences about the effects. Raises TrainyardError if it would refuse."""
    do: Callable[[Description, Mapping[str, str]], Mapping[str, Any]]
    """Function from (description, typed values) to the response that AWS's call would have given,
    as far as known. Raises TrainyardError if it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Everything that an application adds to the console."""

    owners: Sequence[Owner] = ()
    panels: Panels = (METRICS,)  # panels about its executions on the pages
    judge: Judge = defer_judgement  # returns the outcome of its own executions, for the list


NONE = Application()


def get_application() -> Application:
    """Return the application of the current request."""
    return cast(Application, current_app.extensions["trainyard-application"])


def find_owner(action: str, description: Description) -> Owner | None:
    """Return the owner of the action on that resource, or None if no application owns it."""
    owners = (o for o in get_application().owners if o.action == action and o.owns(description))
    return next(owners, None)
