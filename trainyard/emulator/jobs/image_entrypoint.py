"""What starts in a training job: the request's entry point, or the image's own, AWS's toolkit.

A tuning job's API has no entry point. So AWS's drivers can be started there as a program of the
toolkit, named by hyperparameters; without the toolkit, that very program is started here.
"""

import shutil
from pathlib import Path
from typing import Any

from trainyard.emulator.algorithms.xgboost import facts
from trainyard.emulator.jobs import builtin_algorithms
from trainyard.language.step_types.job_steps import DRIVERS, PROGRAM, starts_drivers


def command(request: dict[str, Any], python: Path) -> list[str]:
    """Return the command that the container runs."""
    if builtin_algorithms.without_script(request):
        return builtin_algorithms.training_command(request, python)
    spec = request["AlgorithmSpecification"]
    command_line = toolkit(python)
    if not spec.get("ContainerEntrypoint") and command_line is None:
        return [str(python), f"{DRIVERS}/{request['HyperParameters'][PROGRAM]}"]
    return [
        *(spec.get("ContainerEntrypoint") or [str(command_line)]),
        *spec.get("ContainerArguments", []),
    ]


def environment(request: dict[str, Any]) -> dict[str, str]:
    """Return AWS's variables for the images' own entry point, the sagemaker-training toolkit."""
    if request["AlgorithmSpecification"].get("ContainerEntrypoint"):
        return {}
    if builtin_algorithms.without_script(request):
        return {"SAGEMAKER_BASE_DIR": "/opt/ml"}
    image = request["AlgorithmSpecification"]["TrainingImage"]
    plain = facts.repository(image) == "sagemaker-scikit-learn"  # it only runs the script
    package = f"sagemaker_{'xgboost' if facts.is_xgboost(image) else 'pytorch'}_container"
    module = {"SAGEMAKER_TRAINING_MODULE": f"{package}.training:main"}
    return {
        "SAGEMAKER_BASE_DIR": "/opt/ml",
        **({} if plain else module),
        "SM_STUDIO_LOCAL_MODE": "true",  # else it waits for DNS of its peers for a minute
    }


def refusal(request: dict[str, Any], python: Path) -> str | None:
    """Return why nothing can be started here; None if it can."""
    spec = request["AlgorithmSpecification"]
    if builtin_algorithms.without_script(request):
        return builtin_algorithms.refusal(request, python)
    if spec.get("ContainerEntrypoint") or toolkit(python) or starts_drivers(request):
        return None
    return (
        "AlgorithmSpecification has no ContainerEntrypoint, so the image's own would run: the "
        f"sagemaker-training toolkit, which {python} lacks. SDK v3's ModelTrainer sets an "
        "entrypoint; for SDK v2 jobs install sagemaker-pytorch-training there, or "
        "sagemaker-training, which is enough for XGBoost and scikit-learn"
    )


def toolkit(python: Path) -> Path | None:
    """Return the sagemaker-training toolkit's command; None if that interpreter lacks it."""
    program = shutil.which("train", path=str(python.parent))
    return Path(program) if program else None
