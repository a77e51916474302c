"""ONE table of step types: everything that validate, plan, permissions, runs and the emulator know.

To add a type, write an entry into the module of its family, or a module of its own: every
:class:`StepType` of a module in this package is in the table. Sources: the SDK's classes (3.27),
botocore's model and the developer guide; an entry names the source where only one has the fact.
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
"""Value of ``Type`` → its step type."""

NESTED_KEYS = tuple(name for kind in STEP_TYPES.values() for name in kind.nests)
"""Names of Arguments, of any type, that hold further steps."""

_UNKNOWN = StepType(name="", nests=NESTED_KEYS)


def step_type(name: object) -> StepType:
    """Return the step type whose ``Type`` is ``name``; an empty one if it is unknown."""
    return STEP_TYPES.get(name, _UNKNOWN) if isinstance(name, str) else _UNKNOWN


__all__ = ["NESTED_KEYS", "STEP_TYPES", "Job", "StepType", "step_type"]
