"""The language model's packing."""

from training.workloads.language_model.packing import Packing

__all__ = ["Packing"]
