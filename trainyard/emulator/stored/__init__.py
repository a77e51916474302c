"""Resources that SageMaker only stores: cards, job definitions, experiments and others."""

from trainyard.emulator.stored.resource_kinds import refusal
from trainyard.emulator.stored.stored_kinds import Stored

__all__ = ["Stored", "refusal"]
