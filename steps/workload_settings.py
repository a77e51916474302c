"""Settings of the workload that a search varies: each is a hyperparameter of its own, which takes
the place of the one in the JSON of all of them.

Apart: recipe, step, job and registry read it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "workload_config_"
"""Beginning of such a hyperparameter's name; the setting's own name follows."""


def as_hyperparameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameter → value of each of the workload's settings."""
    return {f"{PREFIX}{name}": value for name, value in settings.items()}


def overlaid(settings: Mapping[str, Any], hyperparameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the workload's settings, with those among the hyperparameters ``hyperparameters`` in
    the place of their own.
    """
    overlay = {
        n.removeprefix(PREFIX): v for n, v in hyperparameters.items() if n.startswith(PREFIX)
    }
    return {**settings, **{n: _convert_value(v, settings.get(n)) for n, v in overlay.items()}}


def separate_settings(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return a job's arguments without those for the workload's settings; and these."""
    rest, settings = [*arguments], {}
    for index in reversed(range(len(rest) - 1)):
        if rest[index].startswith(f"--{PREFIX}"):
            name, value = rest[index : index + 2]
            settings[name.removeprefix("--")] = value
            del rest[index : index + 2]
    return rest, settings


def _convert_value(value: str, before: Any) -> Any:
    """Return a hyperparameter's value; ``before``: the one whose place it takes."""
    if isinstance(before, str):
        return value
    try:
        return json.loads(value.lower() if isinstance(before, bool) else value)
    except ValueError:
        return value
