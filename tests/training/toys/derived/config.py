"""The language model's settings and metrics."""

from training.workloads.language_model.config import SPEC

__all__ = ["SPEC"]
