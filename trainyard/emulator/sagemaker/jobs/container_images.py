"""Which images this machine's Python can replace, and which run in a container engine.

AWS's images for PyTorch, scikit-learn and XGBoost contain Python with those libraries, and so does
the interpreter that runs the emulator. Any other image runs in the engine, unless the user maps it
to the interpreter. Without an engine it is refused, because the emulator cannot guess what it does.
"""

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.emulator.algorithms import command
from trainyard.emulator.algorithms.xgboost import facts
from trainyard.emulator.algorithms.xgboost.facts import is_another, is_xgboost, repository
from trainyard.emulator.containers.container_engine import find_engine, read_mode
from trainyard.emulator.containers.node import lacking

PACKAGES = Path(__file__).parents[2] / "algorithms/image"
"""Replacements for AWS's own packages in its XGBoost and scikit-learn images."""
VARIABLE = "TRAINYARD_EMULATOR_IMAGES"
"""Environment variable with additional patterns (fnmatch, on the image's URI), separated by commas
or spaces.
"""

KNOWN_IMAGES = (
    "pytorch-training",  # AWS Deep Learning Containers
    "pytorch-training-*",
    "pytorch-inference",
    "pytorch-inference-*",
    "huggingface-pytorch-*",
    "pytorch-smp",  # SageMaker model parallel library v2
    "smdistributed-modelparallel",
    "sagemaker-pytorch*",
    "sagemaker-scikit-learn",
    "sagemaker-xgboost",
    "sagemaker-model-monitor-analyzer",
    "sagemaker-base-python*",
    "sagemaker-distribution*",
)


def own_packages(image: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the PYTHONPATH that adds the packages that exist only in ``image``; empty if it has
    none.
    """
    if not is_xgboost(image) and repository(image) != "sagemaker-scikit-learn":
        return {}
    parts = [environment.get("PYTHONPATH", ""), str(PACKAGES)]
    return {"PYTHONPATH": os.pathsep.join(filter(None, parts))}


def refusal(image: str) -> str | None:
    """Return why ``image`` cannot run here and what to do about it. Return None if it can run."""
    if not isinstance(image, str):  # in a pipeline definition it may be any JSON value
        return f"image {image!r} is not text"
    if not runs_in_engine(image):
        return _replacement_refusal(image)
    try:
        why = find_engine().refusal(image)
    except EmulatorError as error:
        why = str(error)
    if why is None or read_mode() == "always":
        return why
    return f"{_replacement_refusal(image)}. Nor does it run in a container: {why}"


def runs_in_engine(image: str) -> bool:
    """Return whether a container engine runs the image, and not this machine's Python."""
    mode = read_mode()
    if mode == "never" or not image:
        return False
    return mode == "always" or _replacement_refusal(image) is not None


def _replacement_refusal(image: str) -> str | None:
    """Return why this machine's Python cannot replace the image. Return None if it can."""
    name = repository(image)
    if is_xgboost(image) or any(fnmatch.fnmatchcase(name, pattern) for pattern in KNOWN_IMAGES):
        return None
    patterns = os.environ.get(VARIABLE, "").replace(",", " ").split()
    if any(fnmatch.fnmatchcase(image, pattern) for pattern in patterns):
        return None
    if is_another(image):
        return (
            f"image {image!r} is AWS's algorithm {name}, whose program is not public: of AWS's "
            "algorithms only XGBoost runs here. Run this pipeline on AWS"
        )
    return (
        f"image {image!r} is not known to this emulator, which runs jobs with this machine's "
        f"Python and knows AWS's PyTorch, Hugging Face, scikit-learn and XGBoost images. If this "
        f"machine's Python has what the image has, set {VARIABLE} to a pattern for it, e.g. "
        f"'*/{name}:*', and start the emulator again"
    )


# Training jobs of AWS's own algorithms, whose image is started without a user's script. Only
# XGBoost is supported, by :mod:`trainyard.emulator.algorithms.xgboost`.

_TRAIN = "trainyard.emulator.algorithms.xgboost.train"
_PACKAGES = ["xgboost", "numpy", "scipy"]
_NOT_DONE = {
    "_kfold": "cross validation is not supported here: only Autopilot uses it",
    "use_dask_gpu_training": "Dask on several GPUs is not supported here: leave it out",
}


def without_script(request: dict) -> bool:
    """Return whether the CreateTrainingJob request runs the XGBoost algorithm itself, without a
    script.
    """
    spec = request["AlgorithmSpecification"]
    return (
        facts.is_xgboost(spec.get("TrainingImage", ""))
        and not spec.get("ContainerEntrypoint")
        and facts.SCRIPT not in request.get("HyperParameters", {})
    )


def metric_definitions() -> list[dict[str, str]]:
    """Return the metrics that SageMaker adds for the algorithm: ``validation:rmse`` and so on."""
    return facts.metric_definitions()


def training_command(request: dict, python: Path) -> list[str]:
    """Return the command that the container runs."""
    version = facts.version(request["AlgorithmSpecification"]["TrainingImage"])
    return command(python, _TRAIN, *map(str, version))


def algorithm_refusal(request: dict, python: Path) -> str | None:
    """Return why the algorithm cannot run here. Return None if it can.

    What AWS's own algorithm refuses, such as a missing ``num_round``, is not checked here: it makes
    the job fail, as on AWS.
    """
    if missing := lacking(python, _PACKAGES):
        return (
            f"the image is started without a script, so it is AWS's XGBoost algorithm; {python} "
            f"lacks {', '.join(missing)} for it: {python} -m pip install xgboost-cpu"
        )
    if (count := request["ResourceConfig"].get("InstanceCount", 1)) != 1:
        return f"ResourceConfig.InstanceCount {count}: XGBoost trains on one instance here"
    hyperparameters = request.get("HyperParameters", {})
    for name, reason in _NOT_DONE.items():
        if hyperparameters.get(name, "false") != "false":
            return f"HyperParameters.{name}: {reason}"
    reasons = (_refused_type(channel) for channel in request.get("InputDataConfig", []))
    return next(filter(None, reasons), None)


def _refused_type(channel: dict) -> str | None:
    """Return why the channel's ContentType cannot be read here. Return None if it can."""
    content_type, location = channel.get("ContentType"), f"channel {channel['ChannelName']!r}"
    if channel["ChannelName"] == "code" or content_type is None:
        return None
    if (form := facts.format_of(content_type)) is None:
        content_types = ", ".join(facts.CONTENT_TYPES)
        return f"{location}: {content_type} is not an accepted ContentType: {content_types}"
    if form == facts.RECORDIO:
        return f"{location}: recordio-protobuf is not read here: use text/csv, libsvm or parquet"
    if facts.label_size(content_type) != "1":
        return (
            f"{location}: {content_type} is not an accepted csv ContentType. Optional parameter "
            "label_size must be equal to 1"
        )
    return None
