"""Amounts as people write them: ``1.4T`` tokens, ``30d``."""

import math
import re

from trainyard.common.errors import RecipeError

SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
HOURS = {"": 1.0, "h": 1.0, "d": 24.0, "w": 168.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?(?:e[+]?\d+)?)\s*([a-z]?)", re.IGNORECASE)


MOST_TOKENS = 1e15
"""Most tokens of a training; published ones had up to some 4e13."""

MOST_USD = 1e12
MOST_HOURS = 10 * 8766.0
"""Ten years."""


def number(option: str, text: str, most: float = MOST_TOKENS) -> float:
    """``300B``, ``1.4T``, ``2e12``.

    Raises:
        RecipeError: it is not such a number, or 0, or more than ``most``.
    """
    return _amount(option, text, SIZES, "a number such as 300B, 1.4T or 2e12", most)


def dollars(text: str) -> float:
    """``--budget``: ``100000``, ``250k``.

    Raises:
        RecipeError: it is not a sum of money above 0.
    """
    return number("--budget", text, MOST_USD)


def hours(option: str, text: str) -> float:
    """``30d``, ``36h``, ``2w``; hours where no letter stands.

    Raises:
        RecipeError: it is not such a time, or 0, or longer than ten years.
    """
    return _amount(option, text, HOURS, "a time such as 36h, 30d or 2w", MOST_HOURS)


def _amount(option: str, text: str, units: dict[str, float], wanted: str, most: float) -> float:
    found = _FORM.fullmatch(text.strip().replace(",", ""))
    unit = units.get(found[2].lower()) if found else None
    amount = float(found[1]) * unit if found and unit else math.nan
    if not 0 < amount <= most:  # false for nan
        allowed = f"more than 0 and at most {most / units['']:,.0f}"
        raise RecipeError(f"{option} {text}: expected {wanted}, {allowed}")
    return amount
