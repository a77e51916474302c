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
    other_arguments, settings = [*arguments], {}
    # From the end, so that what is taken out moves nothing that is still to be looked at.
    for index in reversed(range(len(other_arguments) - 1)):
        if other_arguments[index].startswith(f"--{PREFIX}"):
            name, value = other_arguments[index : index + 2]
            settings[name.removeprefix("--")] = value
            del other_arguments[index : index + 2]
    return other_arguments, settings


def _convert_value(value: str, before: Any) -> Any:
    """Return a hyperparameter's value; ``before``: the one whose place it takes."""
    if isinstance(before, str):
        return value
    try:
        # Python's True is true in JSON.
        return json.loads(value.lower() if isinstance(before, bool) else value)
    except ValueError:
        return value
