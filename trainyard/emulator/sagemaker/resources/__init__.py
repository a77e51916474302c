"""Resources that SageMaker only stores: cards, job definitions, experiments and others."""

from trainyard.emulator.sagemaker.resources.resource_kinds import refusal
from trainyard.emulator.sagemaker.resources.store import ResourceStore

__all__ = ["ResourceStore", "refusal"]
