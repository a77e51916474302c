"""The findings of validation, and the locations in a definition (JSON paths) that they concern."""

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem that was found in a definition or a recipe before anything is uploaded."""

    rule: str
    """Name of the rule, in kebab-case: ``spot-without-checkpoints``."""

    severity: Literal["error", "warning"]
    """error: the service refuses it, or the run fails. warning: it may waste money or time."""

    step: str | None
    """Name of the step; None if the problem concerns the pipeline or the recipe as a whole."""

    path: str
    """Location of the problem: ``$.Steps[1].Arguments.StoppingCondition`` in the definition,
    ``train.spot`` in the recipe."""

    problem: str
    """The problem, with the value found and what was expected."""

    why: str
    """Consequence of the problem."""

    fix: str
    """Change that solves it."""

    source: str
    """Source of the rule: a page of AWS's, a shape of botocore's, or an issue's number."""

    answer: str = ""
    """CreatePipeline's own error message, as users quote it; empty if it is not known."""


REFUSAL = "CreatePipeline refuses the definition"
KINDER = (
    "CreatePipeline has refused it, and nobody has published that it no longer does; "
    "the emulator runs it"
)
UNREADABLE = "Unable to parse pipeline definition."
"""Beginning of CreatePipeline's messages about a definition's form."""
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Location:
    """A JSON path in a definition, and the name of the step that it is in (None outside steps)."""

    step: str | None
    path: str

    def join(self, *keys: str | int) -> "Location":
        """Return the location below this one; each key is a member's name or a list index."""
        path = self.path
        for key in keys:
            if isinstance(key, int):
                path += f"[{key}]"
            else:
                path += f".{key}" if _PLAIN.fullmatch(key) else f"[{key!r}]"
        return Location(self.step, path)

    def make_error(
        self, rule: str, problem: str, *, reason: str, fix: str, source: str, answer: str = ""
    ) -> Finding:
        """Return an error at this location: the service refuses it, or the run fails."""
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

    def make_warning(
        self, rule: str, problem: str, *, reason: str, fix: str, source: str
    ) -> Finding:
        """Return a warning about this location: it may waste money or time."""
        finding = self.make_error(rule, problem, reason=reason, fix=fix, source=source)
        return replace(finding, severity="warning")


def format_unknown_argument(name: str) -> str:
    """Return CreatePipeline's error message for an unknown member of a definition."""
    return f"{UNREADABLE} Unknown Argument member '{name}'."


def suggest_name(name: Any, valid: list[str], limit: int = 8) -> str:
    """Return a fix for a message: use the most similar valid name, else one of the valid names."""
    close = get_close_matches(str(name), valid, n=1, cutoff=0.6)
    if close:
        return f"use {close[0]}"
    if not valid:
        return "remove it"
    more = f" or one of {len(valid) - limit} more" if len(valid) > limit else ""
    return f"use one of {', '.join(valid[:limit])}{more}"


def shorten_repr(value: Any, longest: int = 80) -> str:
    """Return ``repr(value)`` for a message, cut at ``longest`` characters."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
