"""Who hears what becomes of executions: the room that measures them."""

from collections.abc import Callable

Observe = Callable[[dict, str | None], None]
"""Hears of a change of an execution's status, or of that of its step of that name: it gets the
execution's record, and must not take long."""


def unobserved(record: dict, step: str | None) -> None:
    """Nobody wants to know."""
