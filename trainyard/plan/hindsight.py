"""Why a step of an execution that was ran, and was not answered from the cache.

The step's key (``trainyard.language.caching``) is computed for that execution and for earlier ones
in which the step succeeded; what differs from the nearest of them is the reason.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from trainyard.language.caching import duration
from trainyard.language.step_types import step_type
from trainyard.plan.diff import Change, changed
from trainyard.plan.fields import flat
from trainyard.plan.history import History, Run, StepRun, step_of
from trainyard.plan.keys import Keys
from trainyard.plan.resolving import STANDS

ENOUGH = 5
"""Earlier executions that are looked at: each costs three calls."""

_RUN = re.compile(r"arn:[\w-]+:sagemaker:\S+?/execution/(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """Why a step ran."""

    why: str
    """In a sentence."""

    nearest: Run | None = None
    """The newest earlier execution in which the step succeeded."""

    changes: tuple[Change, ...] = ()
    """What of the key differs from it."""


def why_it_ran(arn: str, name: str, began: datetime, history: History) -> Hindsight:
    """Why the step of that execution was not answered from the cache.

    Args:
        began: when the step did.
        history: of the executions before that one; is read as far as it is needed.
    """
    run = history.run(arn)
    step = step_of(run, name) if run else None
    if run is None or step is None:
        return Hindsight(why="The definition that it ran has no step of this name.")
    if why := _never(step):
        return Hindsight(why=why)
    keys = Keys(name, history)
    key = keys.of(run)
    if key is None:
        return Hindsight(why="What makes its key cannot be told from the definition.")
    while len(history.runs) < ENOUGH and history.more():
        pass
    earlier = keys.earlier()
    if not earlier:
        looked = len(history.runs)
        if not looked:
            return Hindsight(why="There was no execution before.")
        before = "the execution" if looked == 1 else f"any of the {looked} executions"
        said = f"It did not succeed, with its cache on, in {before} before."
        return Hindsight(why=said)
    return _against(step, key, began, earlier)


def _never(step: Mapping[str, Any]) -> str:
    """Why such a step is never answered from the cache; empty where it may be."""
    kind, name = step_type(step.get("Type")), step.get("Type")
    if not kind.cached:
        return f"SageMaker caches no steps of type {name}."
    config = step.get("CacheConfig")
    if not config:
        return "Caching is not configured: the step has no CacheConfig."
    if not config.get("Enabled"):
        return "Caching is off: CacheConfig.Enabled is false."
    if not kind.cache_key:
        return f"What makes the key of a step of type {name} is not documented."
    return ""


def _against(
    step: Mapping[str, Any],
    key: dict[str, Any],
    began: datetime,
    earlier: list[tuple[Run, StepRun, dict[str, Any]]],
) -> Hindsight:
    same = [(run, made) for run, made, its in earlier if _text(its) == _text(key)]
    if not same:
        nearest, _, old = earlier[0]
        changes = tuple(_told(one) for one in changed(flat(old), flat(key)))
        said = "What makes its key differs from the nearest earlier execution where it succeeded."
        return Hindsight(why=said, nearest=nearest, changes=changes)
    run, made = max(same, key=lambda each: each[1].ended)
    keeps = step["CacheConfig"].get("ExpireAfter")
    if keeps and began - made.ended > timedelta(seconds=duration(keeps)):
        said = (
            f"Expired: the result is of {made.ended:%Y-%m-%d %H:%M} UTC, the cache keeps {keeps}."
        )
        return Hindsight(why=said, nearest=run)
    said = (
        "An earlier execution had the same key, and the service did not take its result: "
        "that may be gone, or was changed meanwhile."
    )
    return Hindsight(why=said, nearest=run)


def _text(key: Any) -> str:
    return json.dumps(key, sort_keys=True)


def _told(change: Change) -> Change:
    """The change, with a value that no definition tells by the execution that it is of."""
    old, new = (value and _RUN.sub(r"run \1", value) for value in (change.old, change.new))
    return replace(change, old=old and old.replace(STANDS, ""), new=new and new.replace(STANDS, ""))
