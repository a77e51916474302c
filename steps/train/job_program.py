"""Define the program of the training job: Trainyard's loop, or a user's script."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join
from sagemaker.train.configs import (
    Channel,
    DataSource,
    FileSystemDataSource,
    S3DataSource,
    SourceCode,
)
from sagemaker.train.distributed import MPI, SMP, DistributedConfig, Torchrun

from steps.processing import Splits, StepContext
from steps.train.config import TrainStepConfig
from steps.train.train_script import Project, format_hyperparameter
from training.config import TrainConfig
from training.identity import Parts
from training.watching.metric_line import METRICS
from training.weights.starting_weights import CHANNEL
from trainyard.common.errors import DefinitionError


def make_s3_channel(name: str, uri: str | PipelineVariable, input_mode: str) -> Channel:
    """Return a channel that gives every node the whole prefix ``uri``. It is not an ``InputData``,
    which would force File instead of FastFile.
    """
    return Channel(
        channel_name=name,
        input_mode=input_mode,
        data_source=DataSource(
            s3_data_source=S3DataSource(
                s3_data_type="S3Prefix", s3_uri=uri, s3_data_distribution_type="FullyReplicated"
            )
        ),
    )


def iter_start_channels(config: TrainStepConfig) -> Iterator[Channel]:
    """Yield the channel of the model that the training starts from; nothing for fresh weights."""
    if config.start_from is None:
        return
    if config.start_from.uri is None:
        raise DefinitionError(
            f"train.start_from.model_package {config.start_from.model_package}: its model.tar.gz "
            "was not looked up; set train.start_from.model to its S3 URI"
        )
    yield make_s3_channel(CHANNEL, config.start_from.uri, "File")


def make_split_channel(config: TrainStepConfig, splits: Splits, split: str) -> Channel:
    """Return the channel of a split's shards, from S3 or the file system that mirrors S3."""
    if config.fsx:
        # The data repository association shows <root>/runs/<execution id>/shard/<split> here.
        runs = f"{config.fsx.directory_path}/runs"
        execution = ExecutionVariables.PIPELINE_EXECUTION_ID
        path = Join(on="/", values=[runs, execution, "shard", split])
        return _make_mounted_channel(split, config.fsx.file_system_id, "FSxLustre", path)
    return make_s3_channel(split, splits[split], config.s3_mode)


def _make_mounted_channel(
    name: str, system: str, kind: str, path: str | PipelineVariable
) -> Channel:
    """Return a channel that mounts a folder of a file system, read-only."""
    return Channel(
        channel_name=name,
        input_mode="File",
        data_source=DataSource(
            file_system_data_source=FileSystemDataSource(
                file_system_id=system,
                file_system_type=kind,
                file_system_access_mode="ro",
                directory_path=path,
            )
        ),
    )


CODE = "/opt/ml/input/data/code"
SPLITS = ("train", "validation")
DRIVERS = {
    "torchrun": "torchrun_driver.py",
    "mpi": "mpi_driver.py",
    "none": "basic_script_driver.py",
}
"""AWS's driver (SDK 3.27) for each launcher, a file in container_drivers/distributed_drivers."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The parts of a training job's request that depend on the loop or script that runs."""

    source_code: SourceCode
    distributed: DistributedConfig
    environment: Mapping[str, str]
    hyperparameters: Mapping[str, str | PipelineVariable]
    metrics: Sequence[tuple[str, str]]
    """(name, regular expression with one group) of each metric that is read from the log."""
    channels: Sequence[Channel]
    description: str


class OwnDriver:
    """Mixin that starts one of AWS's drivers by ours, which passes SIGTERM on to the ranks.

    In the container, AWS's drivers are in the folder above ours.
    """

    @property
    def driver_dir(self) -> str:
        """Return the folder whose files the SDK sends as the driver."""
        return str(Path(__file__).parent / "driver")

    @property
    def driver_script(self) -> str:
        """Return the file in ``driver_dir`` that the SDK's script starts."""
        return "script_driver.py"


class SignalledTorchrun(OwnDriver, Torchrun):
    """Torchrun for the loop's ranks, whose driver passes SIGTERM on to them."""

    driver: str = DRIVERS["torchrun"]


class SignalledMPI(OwnDriver, MPI):
    """MPI for the loop's ranks, whose driver passes SIGTERM on to them."""

    driver: str = DRIVERS["mpi"]


class ScriptDriver(OwnDriver, DistributedConfig):
    """Configuration of our driver (``steps/train/driver``), which runs AWS's or the user's driver.

    The fields are sent to the container as distributed.json. AWS's drivers read the first two.
    """

    process_count_per_node: int | None = None
    mpi_additional_options: list[str] | None = None
    launcher: str
    driver: str
    """File of the driver that starts the processes: AWS's, or one in the user's folder."""
    inference: str | None = None
    """File in the user's folder that becomes code/inference.py in the model's archive."""
    parts: dict[str, Any]
    """The parts of ``training.identity.Parts`` that are known when the pipeline is defined."""
    searched: list[str]
    """Arguments whose values a search finds, so that only the job knows them."""
    mounted: list[str]
    """Channels that are file systems. Their files are recorded by name and size only."""


def build_loop_program(
    context: StepContext, config: TrainStepConfig, splits: Splits, workload: Mapping[str, str]
) -> Program:
    """Return the program of Trainyard's own loop, with channels ``train`` and ``validation``.

    ``workload``: the hyperparameters that name the workload and its settings.
    """
    assert config.loop is not None and splits  # noqa: S101 (``Recipe`` has checked this)
    return Program(
        source_code=SourceCode(
            source_dir=context.code("train"),
            entry_script="steps/train/job.py",
            requirements="requirements.txt",
        ),
        distributed=_make_distributed_config(config, config.loop),
        environment={**config.launcher_environment, **config.environment, "PYTHONPATH": CODE},
        hyperparameters=_build_hyperparameters(context, config, config.loop, workload),
        metrics=METRICS,
        channels=[
            *(make_split_channel(config, splits, split) for split in SPLITS),
            *iter_start_channels(config),
        ],
        description=f"Distributed training, strategy {config.loop.strategy}",
    )


def build_script_program(
    context: StepContext,
    config: TrainStepConfig,
    project: Project,
    splits: Splits,
    parts: Parts,
    search_names: Sequence[str] = (),
) -> Program:
    """Return the program of a user's script: its channels, and the shards' if there are any.

    Args:
        parts: what the trained weights depend on, as far as it is known when the pipeline is
            defined.
        search_names: arguments whose values a search finds.
    """
    options = (
        _build_mpi_options(config) if config.launcher == "mpi" else (config.processes_per_node, [])
    )
    shards = [make_split_channel(config, splits, name) for name in SPLITS] if splits else []
    return Program(
        source_code=SourceCode(
            source_dir=context.code("train"),
            entry_script=project.script,
            requirements=project.requirements,
        ),
        distributed=ScriptDriver(
            process_count_per_node=options[0] or None,
            mpi_additional_options=options[1] or None,
            launcher=config.launcher,
            driver=project.driver or DRIVERS[config.launcher],
            inference=project.inference,
            parts={name: value for name, value in parts.as_json.items() if name != "code"},
            searched=[*search_names],
            mounted=[*config.file_systems, *(SPLITS if shards and config.fsx else ())],
        ),
        environment={
            **config.launcher_environment,
            **({"PYTHONPATH": CODE} if shards else {}),  # contains the reader of the shards
            **config.environment,
        },
        hyperparameters={name: format_hyperparameter(v) for name, v in config.arguments.items()},
        metrics=list(config.metrics.items()),
        channels=[
            *shards,
            *(make_s3_channel(name, uri, config.s3_mode) for name, uri in config.channels.items()),
            *(
                _make_mounted_channel(
                    name, system.file_system_id, system.type, system.directory_path
                )
                for name, system in config.file_systems.items()
            ),
        ],
        description=f"Training by {project.script}, launcher {config.launcher}",
    )


def _make_distributed_config(config: TrainStepConfig, loop: TrainConfig) -> DistributedConfig:
    """Return the configuration with which AWS's drivers start the loop's ranks."""
    processes = config.processes_per_node or None
    if config.launcher == "mpi":
        count, options = _build_mpi_options(config)
        return SignalledMPI(
            process_count_per_node=count or None, mpi_additional_options=options or None
        )
    if loop.strategy == "smp":
        smp = SMP(hybrid_shard_degree=loop.shard_degree)
        return SignalledTorchrun(process_count_per_node=processes, smp=smp)
    return SignalledTorchrun(process_count_per_node=processes)


def _build_mpi_options(config: TrainStepConfig) -> tuple[int, list[str]]:
    """Return (number of processes, options of mpirun).

    The MPI driver of SDK 3.27 passes the number of one node's processes as mpirun's ``-np``, which
    means the total. With several nodes it would start only as many processes as one node has. So
    the total is passed here, and ``--map-by`` says how many of them each node gets.
    """
    processes, nodes = config.processes_per_node, config.instance_count
    if nodes == 1:
        return processes, []
    return processes * nodes, ["--map-by", f"ppr:{processes}:node"]


def _build_hyperparameters(
    context: StepContext,
    config: TrainStepConfig,
    settings: TrainConfig,
    workload: Mapping[str, str],
) -> dict[str, str | PipelineVariable]:
    """Return all hyperparameters as strings.

    The service refuses anything else, even a bare ``Get`` of a number (sagemaker-python-sdk #4867).
    """
    loop = {name: str(value) for name, value in settings.model_dump(mode="json").items()}
    start = config.start_from
    start_options = {"start_from": start.model_dump_json(exclude_defaults=True)} if start else {}
    start_options["watch"] = config.watching.model_dump_json(exclude_defaults=True)
    if config.tuning.part is not None:
        start_options["tuning"] = config.tuning.model_dump_json(exclude_defaults=True)
    return {
        **loop,
        "max_steps": context.get_parameter_string("MaxSteps"),
        **workload,
        **start_options,
    }
