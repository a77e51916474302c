"""A check's place in a definition; findings are created from it."""

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem that will occur, found before anything is uploaded."""

    rule: str
    """Name of the rule, in kebab-case: ``spot-without-checkpoints``."""

    severity: Literal["error", "warning"]
    """error: the service refuses it, or the run cannot end well. warning: it may cost you."""

    step: str | None
    """Name of the step; None if it concerns the pipeline or the recipe as a whole."""

    path: str
    """Place: ``$.Steps[1].Arguments.StoppingCondition`` in the definition, ``train.spot`` in the
    recipe."""

    problem: str
    """Problem, with the value and what was expected."""

    why: str
    """Consequence of the problem."""

    fix: str
    """Change that solves it."""

    source: str
    """Source of the rule: AWS's page, botocore's shape, an issue's number."""

    answer: str = ""
    """CreatePipeline's own message for it, as people quote it; empty if it is not known."""


REFUSAL = "CreatePipeline refuses the definition"
KINDER = (
    "CreatePipeline has refused it, and nobody has published that it no longer does; "
    "the emulator runs it"
)
UNREADABLE = "Unable to parse pipeline definition."
"""Start of CreatePipeline's messages on a definition's form."""
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Place:
    """A JSON path, and its step."""

    step: str | None
    path: str

    def join(self, *keys: str | int) -> "Place":
        """Return the place of a member (by name) or an item (by index) below this one."""
        path = self.path
        for key in keys:
            if isinstance(key, int):
                path += f"[{key}]"
            else:
                path += f".{key}" if _PLAIN.fullmatch(key) else f"[{key!r}]"
        return Place(self.step, path)

    def error(
        self, rule: str, problem: str, *, reason: str, fix: str, source: str, answer: str = ""
    ) -> Finding:
        """Return a finding here that the service refuses, or that ends the run."""
        return Finding(
            rule=rule,
            severity="error",
            step=self.step,
            path=self.path,
            problem=problem,
            why=reason,
            fix=fix,
            source=source,
            answer=answer,
        )

    def warning(self, rule: str, problem: str, *, reason: str, fix: str, source: str) -> Finding:
        """Return a finding here that may cost something."""
        finding = self.error(rule, problem, reason=reason, fix=fix, source=source)
        return replace(finding, severity="warning")


def unknown_argument(name: str) -> str:
    """Return CreatePipeline's message on a member that it does not take."""
    return f"{UNREADABLE} Unknown Argument member '{name}'."


def suggestion(name: Any, valid: list[str], limit: int = 8) -> str:
    """Return ``use x`` with the nearest valid name, else with some of the valid ones."""
    close = get_close_matches(str(name), valid, n=1, cutoff=0.6)
    if close:
        return f"use {close[0]}"
    if not valid:
        return "remove it"
    more = f" or one of {len(valid) - limit} more" if len(valid) > limit else ""
    return f"use one of {', '.join(valid[:limit])}{more}"


def brief(value: Any, longest: int = 80) -> str:
    """Return ``value`` for a message: only its beginning, if it is long."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
