"""Resources that SageMaker only stores: cards, job definitions, experiments and others."""

from trainyard.emulator.stored.resource_kinds import refusal
from trainyard.emulator.stored.stored_kinds import ResourceStore

__all__ = ["ResourceStore", "refusal"]
