"""Amounts as people write them: ``1.4T`` tokens, ``30d``."""

import re

from trainyard.common.errors import RecipeError

SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
HOURS = {"": 1.0, "h": 1.0, "d": 24.0, "w": 168.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?(?:e[+]?\d+)?)\s*([a-z]?)", re.IGNORECASE)


def number(option: str, text: str) -> float:
    """``300B``, ``1.4T``, ``2e12``.

    Raises:
        RecipeError: it is no such number, or 0.
    """
    return _amount(option, text, SIZES, "a number such as 300B, 1.4T or 2e12")


def hours(option: str, text: str) -> float:
    """``30d``, ``36h``, ``2w``; hours where no letter stands.

    Raises:
        RecipeError: it is no such time, or 0.
    """
    return _amount(option, text, HOURS, "a time such as 36h, 30d or 2w")


def _amount(option: str, text: str, units: dict[str, float], wanted: str) -> float:
    found = _FORM.fullmatch(text.strip().replace(",", ""))
    unit = units.get(found[2].lower()) if found else None
    if found is None or unit is None or float(found[1]) == 0:
        raise RecipeError(f"{option} {text}: expected {wanted}")
    return float(found[1]) * unit
