"""The console's extension points for an application built on Trainyard."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from flask import current_app

from trainyard.console.outcomes import Judge, no_judge
from trainyard.console.panels import METRICS, Panels

Described = Mapping[str, Any]
"""AWS's description of the thing that an action is about, such as DescribeModelPackage's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An action that an application carries out on its own things, by its own rules."""

    action: str
    owns: Callable[[Described], bool]
    says: Callable[[Described], Sequence[str]]
    """Returns sentences about the effects; raises TrainyardError if it would refuse."""
    do: Callable[[Described, Mapping[str, str]], Mapping[str, Any]]
    """(description, typed values) → the answer that AWS's call would have given, as far as known;
    raises TrainyardError if it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Everything that an application adds to the console."""

    owners: Sequence[Owner] = ()
    panels: Panels = (METRICS,)
    """Panels about its runs on the pages."""
    judge: Judge = no_judge
    """Returns the outcome of its own runs, for the list."""


NONE = Application()


def application() -> Application:
    """Return the application of the current request."""
    return cast(Application, current_app.extensions["trainyard-application"])


def owner(action: str, described: Described) -> Owner | None:
    """Return the owner of the action on that thing; None if no application owns it."""
    found = (o for o in application().owners if o.action == action and o.owns(described))
    return next(found, None)
