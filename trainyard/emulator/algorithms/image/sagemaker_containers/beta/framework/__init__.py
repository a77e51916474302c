"""The names that AWS's examples import: ``encoders``, ``worker``, ``content_types`` and others.

``content_types``, ``encoders``, ``errors`` and ``worker.Response`` work. The other modules can be
imported, as the examples do, but every use of a name in them raises an error with that name.
"""

import sys
import types

from sagemaker_containers import entry_point  # type: ignore[import-not-found]  # noqa: F401
from sagemaker_containers.beta.framework import content_types, encoders, errors, worker  # type: ignore[import-not-found]  # noqa: F401


class _Absent(types.ModuleType):
    """A module whose contents are not provided here."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(
            f"{self.__name__}.{name} is not provided outside AWS's image: read the environment "
            "variables SM_* and SAGEMAKER_*, or use sagemaker_training.environment "
            "(pip install sagemaker-training)"
        )


for _name in (
    *("env", "files", "functions", "logging", "mapping", "modules", "mpi", "params", "process"),
    *("runner", "server", "trainer", "transformer"),
):
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _Absent(f"{__name__}.{_name}")
