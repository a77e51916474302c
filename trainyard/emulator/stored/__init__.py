"""What SageMaker only keeps: models, endpoint configurations, cards, definitions, experiments."""

from trainyard.emulator.stored.resource_kinds import refusal
from trainyard.emulator.stored.store import Stored

__all__ = ["Stored", "refusal"]
