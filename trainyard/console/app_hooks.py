"""What an application that is built on Trainyard brings to the console; the console knows none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from flask import current_app

from trainyard.console.panels import METRICS, Panels

Described = Mapping[str, Any]
"""AWS's description of what an action is about, such as DescribeModelPackage's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An action that an application does itself on what is its own, by its own rules."""

    action: str
    owns: Callable[[Described], bool]
    says: Callable[[Described], Sequence[str]]
    """What it would do, a sentence each; raises TrainyardError where it would refuse."""
    do: Callable[[Described, Mapping[str, str]], Mapping[str, Any]]
    """(what it is about, what was given) → what AWS's call would have answered, as far as it is
    known; raises TrainyardError where it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Everything that it brings."""

    owners: Sequence[Owner] = ()
    panels: Panels = (METRICS,)
    """What it shows of its runs on the pages."""


NONE = Application()


def application() -> Application:
    """What is on whose behalf the request is answered."""
    return cast(Application, current_app.extensions["trainyard-application"])


def owner(action: str, described: Described) -> Owner | None:
    """Who does the action on that; None where it is nobody's own."""
    found = (o for o in application().owners if o.action == action and o.owns(described))
    return next(found, None)
