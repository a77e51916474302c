"""The seeded faults of definitions: ``FAULTS`` must be found, ``NEAR`` left alone by their rule."""

from tests.pipelines.validate.rules.data_faults import OF_DATA
from tests.pipelines.validate.rules.machine_faults import OF_MACHINES
from tests.pipelines.validate.rules.near import NEAR

FAULTS = (*OF_MACHINES, *OF_DATA)
__all__ = ["FAULTS", "NEAR"]
