"""Settings of the workload that a search varies: each is a hyperparameter of its own, which takes
the place of the one in the JSON of all of them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "workload_config_"
"""Beginning of such a hyperparameter's name; the setting's own name follows."""


def as_hyperparameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameter → value of each of the workload's settings."""
    return {f"{PREFIX}{name}": value for name, value in settings.items()}


def overlaid(settings: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the workload's settings, with those among the hyperparameters ``given`` in the place
    of their own.
    """
    found = {n.removeprefix(PREFIX): v for n, v in given.items() if n.startswith(PREFIX)}
    return {**settings, **{n: _typed(v, settings.get(n)) for n, v in found.items()}}


def separated(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return a job's arguments without those for the workload's settings; and these."""
    rest, found = [*arguments], {}
    for at in reversed(range(len(rest) - 1)):
        if rest[at].startswith(f"--{PREFIX}"):
            name, value = rest[at : at + 2]
            found[name.removeprefix("--")] = value
            del rest[at : at + 2]
    return rest, found


def _typed(value: str, before: Any) -> Any:
    """Return a hyperparameter's value; ``before``: the one whose place it takes."""
    if isinstance(before, str):
        return value
    try:
        return json.loads(value.lower() if isinstance(before, bool) else value)
    except ValueError:
        return value
