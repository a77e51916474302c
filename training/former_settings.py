"""Settings that left: what was written with them is read where they changed nothing."""

from collections.abc import Mapping
from typing import Any


def without(given: Any, former: Mapping[str, object]) -> Any:
    """``given`` without each former setting that has its neutral value.

    Args:
        given: the input of a configuration, before its fields are checked.
        former: the setting's name → the value at which it had no effect, as older recipes, records,
            checkpoints and models have it. With another value it stays, and is refused by its name.
    """
    if not isinstance(given, Mapping):
        return given
    return {n: v for n, v in given.items() if n not in former or str(v) != str(former[n])}
