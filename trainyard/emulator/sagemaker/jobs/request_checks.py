"""Checks of a job's request, which refuse what cannot run here.

CreatePipeline runs the same checks on a step's Arguments before any of its expressions has a
value; a check that needs such a value is left to the run.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from trainyard.emulator.request_scope import ApiError
from trainyard.language.expressions import is_expression

Check = Callable[[], object]
"""A check; raises :class:`ApiError` for a request that this emulator cannot run."""


class UndecidedError(Exception):
    """A check asked for the value of an expression."""


class Unknown:
    """The unknown value of an expression: it can be shown, every other use raises
    UndecidedError.
    """

    def __init__(self, expression: dict[str, Any]) -> None:
        self._expression = expression

    def __repr__(self) -> str:
        return repr(self._expression)

    def _ask(self, *_: object) -> NoReturn:
        raise UndecidedError

    __class__ = property(_ask)  # for isinstance
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _ask
    __bool__ = __str__ = __format__ = __len__ = __iter__ = __contains__ = __getitem__ = _ask
    __getattr__ = __add__ = __radd__ = __mul__ = __rmul__ = __or__ = __ror__ = _ask


def mask_expressions(value: Any) -> Any:
    """Return ``value`` with :class:`Unknown` in place of each expression."""
    if is_expression(value):
        return Unknown(value)
    if isinstance(value, dict):
        return {key: mask_expressions(item) for key, item in value.items()}
    return [mask_expressions(item) for item in value] if isinstance(value, list) else value


def refusal(checks: Iterable[Check]) -> str | None:
    """Return the first refusal of a request with unknown values; None when nothing is refused."""
    # A generator of checks may itself ask for an unknown value, and ends there.
    remaining = iter(checks)
    while True:
        try:
            next(remaining)()
        except StopIteration:
            return None
        except (UndecidedError, KeyError, TypeError, AttributeError):
            # Missing or malformed members are left to the run, which knows the whole request.
            continue
        except ApiError as error:
            return error.message
