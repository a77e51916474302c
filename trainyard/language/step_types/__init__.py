"""ONE table of step types: what validate, plan, permissions, runs and the emulator know of them.

To add a type, write an entry into the module of its family, or a module of its own: every
:class:`StepType` of a module in this package is in the table. From the SDK's classes (3.27), from
botocore's model and from the developer guide; an entry says what only one of them says.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from trainyard.language.step_types.step_type import Job, StepType


def _declared() -> Iterator[StepType]:
    for module in pkgutil.iter_modules(__path__):
        names = vars(importlib.import_module(f"{__name__}.{module.name}"))
        yield from (value for value in names.values() if isinstance(value, StepType))


STEP_TYPES: Mapping[str, StepType] = {kind.name: kind for kind in _declared()}
"""``Type`` → what there is to know."""

NESTED = tuple(name for kind in STEP_TYPES.values() for name in kind.nests)
"""The Arguments, of whatever type, that hold further steps."""

_UNKNOWN = StepType(name="", nests=NESTED)


def step_type(name: object) -> StepType:
    """What there is to know of steps whose ``Type`` is ``name``: nothing, where it is no type."""
    return STEP_TYPES.get(name, _UNKNOWN) if isinstance(name, str) else _UNKNOWN


__all__ = ["NESTED", "STEP_TYPES", "Job", "StepType", "step_type"]
