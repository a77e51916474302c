"""The seeded faults of definitions: ``FAULTS`` must be found, ``NEAR`` left alone by their rule."""

from tests.trainyard.validate.rules.algorithm_faults import NEAR_ALGORITHMS, OF_ALGORITHMS
from tests.trainyard.validate.rules.data_faults import NEAR_DATA, OF_DATA
from tests.trainyard.validate.rules.machine_faults import OF_MACHINES
from tests.trainyard.validate.rules.near import NEAR as NEAR_OTHERS
from tests.trainyard.validate.rules.tuning_faults import NEAR_TUNING, OF_TUNING

FAULTS = (*OF_MACHINES, *OF_DATA, *OF_TUNING, *OF_ALGORITHMS)
NEAR = (*NEAR_OTHERS, *NEAR_TUNING, *NEAR_DATA, *NEAR_ALGORITHMS)
__all__ = ["FAULTS", "NEAR"]
