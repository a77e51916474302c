"""The seeded faults of definitions: ``FAULTS`` must be found, ``NEAR`` left alone by their rule."""

from tests.trainyard.validate.rules.job_faults import OF_JOBS
from tests.trainyard.validate.rules.tuning_faults import OF_TUNING

FAULTS = tuple(fault for fault in (*OF_JOBS, *OF_TUNING) if not fault.is_near)
NEAR = tuple(fault for fault in (*OF_JOBS, *OF_TUNING) if fault.is_near)
