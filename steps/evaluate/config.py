"""The evaluate step's settings."""

from steps.config import ProcessingCompute
from steps.evaluate.settings import EvaluateSettings


class EvaluateConfig(EvaluateSettings, ProcessingCompute):
    """The trained model, and the baselines, on the held-out test split."""
