"""Processing jobs with Model Monitor's image: our own analyser stands in for AWS's closed one."""

import json
from collections.abc import Mapping
from pathlib import Path

from trainyard.emulator import algorithms
from trainyard.emulator.jobs.images import repository
from trainyard.emulator.runtime.interpreter import lacking

REPOSITORY = "sagemaker-model-monitor-analyzer"
_MODULE = "trainyard.quality.job"
_SCRIPTS = ("record_preprocessor_script", "post_analytics_processor_script")


def asked_for(spec: Mapping) -> bool:
    """Whether AppSpecification leaves the work to the image."""
    return repository(spec["ImageUri"]) == REPOSITORY and not spec.get("ContainerEntrypoint")


def command(python: Path) -> list[str]:
    """What the container runs."""
    return algorithms.command(python, _MODULE)


def refusal(environment: Mapping[str, str], python: Path) -> str | None:
    """Why the analysis cannot be done here; None when it can."""
    for name in _SCRIPTS:
        if environment.get(name):
            return f"Environment.{name}: our analyser runs no scripts of its user's; leave it out"
    try:
        form = json.loads(environment.get("dataset_format", "{}"))
    except json.JSONDecodeError:
        form = {}  # the job says so, as AWS's would
    if form and not {"csv", "json"} & set(form):
        return (
            f"Environment.dataset_format {json.dumps(form)}: our analyser reads csv, json and JSON "
            "Lines, and neither Parquet nor captured requests"
        )
    if missing := lacking(python, ["numpy"]):
        return f"{python} lacks {missing[0]} for the analysis: {python} -m pip install numpy"
    return None
