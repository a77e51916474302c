"""Training jobs of AWS's own algorithms, whose image is started without a user's script.

Only XGBoost is supported, by :mod:`trainyard.emulator.algorithms.xgboost`.
"""

from pathlib import Path

from trainyard.emulator.algorithms import build_module_command
from trainyard.emulator.algorithms.xgboost import facts
from trainyard.emulator.containers.node import list_missing_modules

_TRAIN = "trainyard.emulator.algorithms.xgboost.train"
_PACKAGES = ["xgboost", "numpy", "scipy"]
_NOT_DONE = {
    "_kfold": "cross validation is not supported here: only Autopilot uses it",
    "use_dask_gpu_training": "Dask on several GPUs is not supported here: leave it out",
}


def runs_without_script(request: dict) -> bool:
    """Return whether the CreateTrainingJob request runs the XGBoost algorithm itself, without a
    script.
    """
    spec = request["AlgorithmSpecification"]
    return (
        facts.is_xgboost_image(spec.get("TrainingImage", ""))
        and not spec.get("ContainerEntrypoint")
        and facts.SCRIPT not in request.get("HyperParameters", {})
    )


def list_metric_definitions() -> list[dict[str, str]]:
    """Return the metrics that SageMaker adds for the algorithm: ``validation:rmse`` and so on."""
    return facts.list_metric_definitions()


def build_training_command(request: dict, python: Path) -> list[str]:
    """Return the command that trains with XGBoost like the version in the image's tag."""
    version = facts.parse_version(request["AlgorithmSpecification"]["TrainingImage"])
    return build_module_command(python, _TRAIN, *map(str, version))


def explain_algorithm_refusal(request: dict, python: Path) -> str | None:
    """Return why the algorithm cannot run here. Return None if it can.

    What AWS's own algorithm refuses, such as a missing ``num_round``, is not checked here: it makes
    the job fail, as on AWS.
    """
    if missing := list_missing_modules(python, _PACKAGES):
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
    reasons = (_explain_refused_type(channel) for channel in request.get("InputDataConfig", []))
    return next(filter(None, reasons), None)


def _explain_refused_type(channel: dict) -> str | None:
    """Return why the channel's ContentType cannot be read here. Return None if it can."""
    content_type, location = channel.get("ContentType"), f"channel {channel['ChannelName']!r}"
    if channel["ChannelName"] == "code" or content_type is None:
        return None
    if (form := facts.find_file_format(content_type)) is None:
        content_types = ", ".join(facts.CONTENT_TYPES)
        return f"{location}: {content_type} is not an accepted ContentType: {content_types}"
    if form == facts.RECORDIO:
        return f"{location}: recordio-protobuf is not read here: use text/csv, libsvm or parquet"
    if facts.parse_label_size(content_type) != "1":
        return (
            f"{location}: {content_type} is not an accepted csv ContentType. Optional parameter "
            "label_size must be equal to 1"
        )
    return None
