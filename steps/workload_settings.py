"""Settings of the workload that a search varies, as hyperparameters.

The workload's settings are passed to the job as one JSON value. A setting that a search varies is a
hyperparameter of its own, which replaces the one in the JSON.

This is a separate module because recipe, step, job and registry all use it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "workload_config_"
"""Start of such a hyperparameter's name. The setting's own name follows."""


def as_hyperparameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return each of the workload's settings as a hyperparameter, with its value unchanged."""
    return {f"{PREFIX}{name}": value for name, value in settings.items()}


def overlay_settings(
    settings: Mapping[str, Any], hyperparameters: Mapping[str, str]
) -> dict[str, Any]:
    """Return the workload's settings, with values replaced by those in ``hyperparameters``."""
    overlay = {
        n.removeprefix(PREFIX): v for n, v in hyperparameters.items() if n.startswith(PREFIX)
    }
    return {**settings, **{n: _convert_value(v, settings.get(n)) for n, v in overlay.items()}}


def separate_settings(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return a job's arguments without those for workload settings, and the latter by name."""
    other_arguments, settings = [*arguments], {}
    # From the end, so that deleting does not move arguments that are still to be checked.
    for index in reversed(range(len(other_arguments) - 1)):
        if other_arguments[index].startswith(f"--{PREFIX}"):
            name, value = other_arguments[index : index + 2]
            settings[name.removeprefix("--")] = value
            del other_arguments[index : index + 2]
    return other_arguments, settings


def _convert_value(value: str, before: Any) -> Any:
    """Return a hyperparameter's value with the type of ``before``, the value that it replaces."""
    if isinstance(before, str):
        return value
    try:
        # Python's True is written as true in JSON.
        return json.loads(value.lower() if isinstance(before, bool) else value)
    except ValueError:
        return value
