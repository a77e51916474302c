"""Resources that SageMaker only stores: cards, job definitions, experiments and others.

``resource_kinds`` is the table of kinds, ``store`` answers create, describe, list, update and
delete for all of them, held to botocore's shapes. To add a kind: a row.
"""

from trainyard.emulator.sagemaker.resources.resource_kinds import refusal
from trainyard.emulator.sagemaker.resources.store import ResourceStore

__all__ = ["ResourceStore", "refusal"]
