"""Read the training out of a definition, in the form that a pod needs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sagemaker.train.container_drivers.common.utils import (
    hyperparameters_to_cli_args,
    safe_deserialize,
)

from pipelines.compile.compilation import CompiledPipeline
from trainyard.common.errors import DefinitionError
from trainyard.instance_types import MACHINES, Machine
from trainyard.language.evaluation import Unknown
from trainyard.validate.outer_form import read

ROOT = "/opt/ml"
DATA = f"{ROOT}/input/data"
DRIVERS = "sm_drivers"
"""Channel with AWS's drivers, which Kubernetes' operator replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The train step's request, with the pipeline's parameters at their defaults."""

    name: str
    """Name valid in Kubernetes, derived from the pipeline's."""

    image: str
    script: str
    """Entry script, below the channel ``code``."""

    arguments: tuple[str, ...]
    """Arguments that AWS's driver gives the script, created by the driver's own function."""

    environment: Mapping[str, str]
    channels: Mapping[str, str]
    """Channel → S3 URI."""

    requirements: str | None
    """File in ``code`` that lists the packages to install before the script starts."""

    nodes: int
    processes: int
    """Ranks per node."""

    machine: Machine
    volume_gb: int
    seconds: int
    """Maximum run time in seconds."""

    restarts: int
    """Number of times that torchrun starts the ranks again."""

    pattern: str | None
    """Regular expression of the line that the training logs every few steps: that of its first
    metric; None for a script without metrics."""

    metrics_port: int
    """Port where rank 0 serves /metrics; 0: not served."""

    region: str
    definition_sha256: str


def read_training(pipeline: CompiledPipeline, given: Mapping[str, str]) -> Training:
    """Return the training of a compiled pipeline.

    Args:
        given: channel → S3 URI, for the channels that are known only in a run of the pipeline.

    Raises:
        DefinitionError: the data of a channel are not given; a channel is given that the step
            lacks; a hyperparameter is searched; the instance type is unknown, or has no GPU and no
            CPU that torch runs on; the ranks are not started by torchrun.
    """
    document, wrong = read(pipeline.body)
    if document is None:
        raise DefinitionError(f"the definition cannot be read: {wrong[0]}")
    step = next(step for step in document.steps if step.type == "Training")
    request = document.value(step.arguments)
    channels = _channels(request, given)
    if DRIVERS not in channels:
        raise DefinitionError(
            "train.algorithm: an algorithm of AWS's runs on SageMaker only; set train.script to a "
            "script of your own"
        )
    drivers = {a.uri: a.files for a in pipeline.assets}[channels.pop(DRIVERS)]
    source, launch = (json.loads(drivers[f"{n}.json"]) for n in ("sourcecode", "distributed"))
    own = "launcher" in launch  # a script of the user's: AWS's contract, not ours
    _refuse_launcher(launch.get("launcher") or _started_by(drivers))
    machine = _machine(request["ResourceConfig"]["InstanceType"])
    environment = dict(request.get("Environment", {}))
    hyperparameters = _known(request.get("HyperParameters", {}))
    if own:
        environment |= _driver_variables(machine, channels, hyperparameters)
    return Training(
        name=_named(pipeline.name),
        image=request["AlgorithmSpecification"]["TrainingImage"],
        script=source["entry_script"],
        arguments=tuple(hyperparameters_to_cli_args(hyperparameters)),
        environment=environment,
        channels=channels,
        requirements=source["requirements"],
        nodes=request["ResourceConfig"]["InstanceCount"],
        processes=int(launch["process_count_per_node"] or machine.accelerators or 1),
        machine=machine,
        volume_gb=request["ResourceConfig"]["VolumeSizeInGB"],
        seconds=request["StoppingCondition"]["MaxRuntimeInSeconds"],
        restarts=int(environment.get("PET_MAX_RESTARTS", 0)),
        pattern=_pattern(request["AlgorithmSpecification"].get("MetricDefinitions", ())),
        metrics_port=0 if own else int(hyperparameters.get("metrics_port", 0)),
        region=pipeline.region,
        definition_sha256=pipeline.sha256,
    )


def _known(hyperparameters: dict[str, Any]) -> dict[str, str]:
    """Return the hyperparameters; raise where only a run knows one."""
    searched = [name for name, value in hyperparameters.items() if isinstance(value, Unknown)]
    if searched:
        raise DefinitionError(
            f"step Train: only a run knows {', '.join(searched)}; put the values of its step "
            "Choose, overlay.yaml, into the recipe, and remove tune"
        )
    return hyperparameters


def _channels(request: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    named = {channel["ChannelName"]: channel for channel in request["InputDataConfig"]}
    if unknown := sorted(set(given) - set(named)):
        raise DefinitionError(
            f"--channel {unknown[0]}: step Train has no such channel; it has {', '.join(named)}"
        )
    return {name: given.get(name) or _uri(name, channel) for name, channel in named.items()}


def _uri(name: str, channel: Mapping[str, Any]) -> str:
    source = channel["DataSource"].get("S3DataSource")
    if source is None:
        raise DefinitionError(
            f"step Train: channel {name} is on a file system; give with --channel {name}=s3://… "
            "where its data are in S3"
        )
    if isinstance(source["S3Uri"], Unknown):
        raise DefinitionError(
            f"step Train: only a run knows where the data of channel {name} are; run the pipeline "
            f"as far as step Shard, and give --channel {name}=s3://…/runs/EXECUTION/shard/{name}"
        )
    return source["S3Uri"]


def _started_by(drivers: Mapping[str, bytes]) -> str:
    """Return the launcher of our own loop, by the driver that the job's script calls."""
    return "torchrun" if b"torchrun_driver.py" in drivers["sm_train.sh"] else "mpi"


def _refuse_launcher(launcher: str) -> None:
    if launcher != "torchrun":
        raise DefinitionError(
            f"train.launcher: is {launcher}, and on Kubernetes the operators start torchrun's "
            "ranks only; set it to torchrun"
        )


def _driver_variables(
    machine: Machine, channels: Mapping[str, str], hyperparameters: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that AWS's driver gives a script
    (sagemaker/train/container_drivers/scripts/environment.py), except the hosts' names, which only
    the operator knows.
    """
    data = sorted(set(channels) - {"code"})
    return {
        "SM_MODEL_DIR": f"{ROOT}/model",
        "SM_OUTPUT_DIR": f"{ROOT}/output",
        "SM_OUTPUT_DATA_DIR": f"{ROOT}/output/data",
        "SM_INPUT_DIR": f"{ROOT}/input",
        "SM_INPUT_DATA_DIR": DATA,
        "SM_NUM_GPUS": str(machine.accelerators),
        "SM_CURRENT_INSTANCE_TYPE": machine.name,
        "SM_CHANNELS": json.dumps(data),
        **{f"SM_CHANNEL_{name.upper()}": f"{DATA}/{name}" for name in data},
        "SM_HPS": json.dumps({n: safe_deserialize(v) for n, v in hyperparameters.items()}),
        **{f"SM_HP_{name.upper()}": value for name, value in hyperparameters.items()},
    }


def _pattern(metrics: Sequence[Mapping[str, str]]) -> str | None:
    return f".*{metrics[0]['Regex']}.*" if metrics else None


def _machine(name: Any) -> Machine:
    machine = MACHINES.get(name)
    if machine is None or machine.kind == "neuron":
        raise DefinitionError(
            f"train.instance_type: {name} is not a type whose GPUs or CPUs a manifest can ask for"
        )
    return machine


def _named(pipeline: str) -> str:
    """Return a DNS label: lower-case letters, digits and dashes, 50 at most
    (operators add to it).
    """
    return re.sub("[^a-z0-9-]", "-", pipeline.lower())[:44].strip("-") + "-train"
