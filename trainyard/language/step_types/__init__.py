"""The table of step types, which validate, plan, permissions, runs and the emulator share.

To add a type, add a :class:`StepType` to the module of its family, or to a new module: all of them
in the modules of this package are in the table. The sources are the SDK's classes (3.27),
botocore's model and the developer guide; an entry names its source if only one states the fact.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from trainyard.language.step_types.step_type import Job, StepType


def _collect_types() -> Iterator[StepType]:
    for module in pkgutil.iter_modules(__path__):
        names = vars(importlib.import_module(f"{__name__}.{module.name}"))
        yield from (value for value in names.values() if isinstance(value, StepType))


STEP_TYPES: Mapping[str, StepType] = {kind.name: kind for kind in _collect_types()}
"""Mapping of a value of ``Type`` to its step type."""

NESTED_KEYS = tuple(name for kind in STEP_TYPES.values() for name in kind.nests)
"""Names of the arguments, of any step type, that contain further steps."""

_UNKNOWN = StepType(name="", nests=NESTED_KEYS)


def get_step_type(name: object) -> StepType:
    """Return the step type called ``name``; a type without properties if it is unknown."""
    return STEP_TYPES.get(name, _UNKNOWN) if isinstance(name, str) else _UNKNOWN


__all__ = ["NESTED_KEYS", "STEP_TYPES", "Job", "StepType", "get_step_type"]
