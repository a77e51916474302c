"""Runners of steps. Each module here registers the runner of one step type.

All modules in this folder are imported. To add a type, write a module and remove the type's line
from ``NOT_RUN``.
"""

from trainyard.emulator.sagemaker.pipelines.steps.runner import RUNNERS, Attempt, Runner, Services
from trainyard.registration import import_modules

NOT_RUN = {
    "AutoML": "its candidates are trained by a service that has no offline counterpart",
    "Job": "its job categories are services that have no offline counterpart",
    "ClarifyCheck": "the container is one of AWS's, whose image is closed",
    "InferenceComponent": "its endpoints serve one model each",
    "EMR": "it has no Spark",
    "EMRServerless": "it has no Spark",
    "Lineage": "it keeps no lineage",
}
"""Mapping of a step type to the reason why this emulator does not run it."""

import_modules(__name__, __path__)

__all__ = ["NOT_RUN", "RUNNERS", "Attempt", "Runner", "Services"]
