"""The evaluate step's settings."""

from steps.config import ProcessingCompute
from steps.evaluate.settings import EvaluateSettings
from steps.evaluate_script.config import EvaluationScript


class EvaluateConfig(EvaluateSettings, EvaluationScript, ProcessingCompute):
    """Evaluation of the trained model, and the baselines, on the held-out test split."""
