"""The train step's settings."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from steps.config import InstanceType
from steps.train.train_script import FsxLustre, ScriptSettings
from training.config import TrainConfig
from training.watching.trackers import find_tracking_uri, list_packages
from training.watching.watcher import Watching
from training.weights.finetuning.adapters import (
    FROZEN_TWICE,
    NO_BASE,
    PACKAGES,
    Adapters,
    Tuning,
    explain_impossible_adapters,
)
from training.weights.starting_weights import StartFrom

CHECKPOINTS = "/opt/ml/checkpoints"
FLOAT8_PACKAGES = ("torchao",)  # packages that float8 needs in addition
ACCELERATED_FAMILIES = ("ml.p", "ml.g", "ml.trn", "ml.inf")
"""Instance families with GPUs or Neuron cores."""


SCRIPTS_ALONE = {*ScriptSettings.model_fields} - {"launcher"}
PROGRAMS = ("loop", "script")


class TrainStepConfig(ScriptSettings):
    """The training job: its machines, its data, and the loop or the script that runs on them."""

    instance_type: InstanceType = "ml.m5.large"
    """SageMaker instance type of every node."""

    fallback_instance_types: tuple[InstanceType, ...] = Field(default=(), max_length=8)
    """Instance types to try in this order when there is no capacity for the previous type:
    ``pipelines.start --wait`` starts the training again, on as many nodes, and reuses the results
    of earlier steps. Each must meet the same requirements as ``instance_type``."""

    training_plan: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:[0-9]{12}:training-plan/\S+$",
        min_length=50,
        examples=["arn:aws:sagemaker:us-east-1:111122223333:training-plan/p-1234567890"],
    )
    """ARN of a SageMaker training plan, whose reserved machines the job runs on (CreateTrainingPlan
    buys one, SearchTrainingPlanOfferings lists the offers). They are paid for with the plan,
    however long the job runs."""

    instance_count: int = Field(default=1, ge=1, le=256)
    """Number of nodes."""

    processes_per_node: int = Field(default=0, ge=0, le=128)
    """Ranks that are started on each node; 0 for one per GPU (one in all without GPUs)."""

    volume_gb: int = Field(default=30, ge=1, le=16384)
    """Size of each node's storage volume, in GB. Instances with NVMe disks use those instead."""

    model_compression: Literal["gzip", "none"] = "gzip"
    """Upload of the trained model (OutputDataConfig.CompressionType). gzip: as one model.tar.gz.
    none: file by file, which a large model needs: it is registered as a prefix, and an endpoint
    gets the files as they are."""

    max_runtime_minutes: int = Field(default=60, ge=1, le=28 * 24 * 60)
    """Minutes of running after which the job is stopped."""

    spot: bool = False
    """Managed spot training: cheaper, may be interrupted, resumes from the last checkpoint."""

    max_wait_minutes: int | None = Field(default=None, ge=1)
    """With spot: maximum minutes of waiting for capacity plus running; at least
    max_runtime_minutes.
    """

    keep_alive_minutes: int = Field(default=0, ge=0, le=60)
    """Minutes for which the machines are kept for the next job of the same shape (warm pool); 0 to
    keep none."""

    input_mode: Literal["File", "FastFile", "FSxLustre"] = "File"
    """File: copied before the job starts. FastFile: streamed from S3. FSxLustre: mounted."""

    fsx: FsxLustre | None = None
    """File system of the FSxLustre input mode."""

    max_restarts: int = Field(default=3, ge=0, le=100)
    """Number of times that torchrun starts all ranks again, from the last checkpoint, when one has
    died or hangs; then the job fails. An error that would recur (a setting, the data, a loss that
    is not finite) is not tried again. Default for a script: 0, as it may not continue from its
    checkpoints, or would end in the same way."""

    environment: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of the training containers (NCCL_DEBUG and the like)."""

    start_from: StartFrom | None = None
    """Model whose weights the training starts from: a checkpoint of another training run, a
    registered model, or a Hugging Face folder. None: fresh weights, or the checkpoints of this same
    training run.
    """

    adapters: Adapters | None = None
    """Train LoRA adapters for the frozen weights of ``start_from``'s model, and save only them;
    with strategies single, ddp and fsdp. None: the weights themselves are trained."""

    freeze: tuple[str, ...] = ()
    """Weights that are not trained, by their names in the model; * matches any characters
    (blocks.0.*)."""

    watch: Watching = Field(default_factory=Watching)
    """Rules that watch the loop while it trains. Each has its limits, and an action for when it
    finds something (warn, stop or off). A rule that is left out is on, and warns."""

    loop: TrainConfig | None = None
    """The training loop; each field becomes a hyperparameter of the job. Instead of ``script``."""

    @property
    def s3_mode(self) -> str:
        """Return the input mode of channels from S3."""
        return "FastFile" if self.input_mode == "FastFile" else "File"

    @property
    def mounted_fields(self) -> list[str]:
        """Return the names of the fields that contain a file system; each needs a VPC."""
        own_fields = [f"file_systems.{name}" for name in self.file_systems]
        return [*(["fsx"] if self.fsx else []), *own_fields]

    @property
    def launcher_environment(self) -> dict[str, str]:
        """Return the environment variables of the launcher.

        They pass settings to torchrun that AWS's driver does not pass on. torchrun also reads its
        options from variables that begin with ``PET_``.
        """
        # AWS's driver does pass the number of processes. It is repeated here for people who read
        # the pipeline's definition.
        processes = {"PET_NPROC_PER_NODE": str(self.processes_per_node)}
        torchrun = {
            **(processes if self.processes_per_node else {}),
            "PET_MAX_RESTARTS": str(self.max_restarts),
            # When the job is stopped: SageMaker waits two minutes between SIGTERM and SIGKILL, and
            # torchrun 30 s by default. Before a restart in place it always waits 30 s.
            "PET_SHUTDOWN_TIMEOUT": "100",
        }
        if self.script:
            return torchrun if self.launcher == "torchrun" else {}
        return {
            **torchrun,
            "TORCH_FR_BUFFER_SIZE": "200",  # number of collectives in the flight recorder
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_FR_DUMP_TEMP_FILE": f"{CHECKPOINTS}/flight-recorder/nccl-rank-",
        }

    @property
    def ranks(self) -> int | None:
        """Return the world size, or None if it depends on the number of accelerators per node."""
        is_accelerated = self.instance_type.startswith(ACCELERATED_FAMILIES)
        if not self.processes_per_node and is_accelerated:
            return None
        return self.instance_count * (self.processes_per_node or 1)

    @property
    def packages(self) -> list[str]:
        """Return the pip requirements of the trackers, strategy, launcher, adapters and float8."""
        if self.loop is None:
            return sorted(list_requirements("", self.launcher))
        trackers = list_packages(self.loop, find_tracking_uri(self.loop, self.environment)).values()
        adapters = PACKAGES if self.adapters else ()
        float8 = FLOAT8_PACKAGES if self.loop.float8 != "none" else ()
        others = list_requirements(self.loop.strategy, self.launcher)
        return sorted({*trackers, *adapters, *float8, *others})

    @property
    def base(self) -> str | None:
        """Return the S3 URI of the model that the training starts from.

        Return None if it starts from fresh weights or a checkpoint.
        """
        start = self.start_from
        return start.uri if start and not start.checkpoint else None

    @property
    def tuning(self) -> Tuning:
        """Return the job's setting that says which weights are trained."""
        return Tuning(adapters=self.adapters, freeze=self.freeze)

    @property
    def watching(self) -> Watching:
        """Return ``watch`` as it is passed to the job: with the job's maximum runtime filled in.

        The runtime is the planned duration of the rule ``cost_beyond_plan``, unless that is set.
        """
        cost = self.watch.cost_beyond_plan
        if cost.planned_minutes is not None:
            return self.watch
        planned_cost = cost.model_copy(update={"minutes": float(self.max_runtime_minutes)})
        return self.watch.model_copy(update={"cost_beyond_plan": planned_cost})

    @model_validator(mode="after")
    def _check_adapters(self) -> Self:
        if self.loop is None and (self.adapters or self.freeze):
            raise ValueError("adapters and freeze are for the training loop; remove them")
        if self.adapters is None:
            return self
        if self.freeze:
            raise ValueError(FROZEN_TWICE.format(", ".join(self.freeze)))
        if self.start_from is None or self.start_from.checkpoint:
            raise ValueError(f"adapters: {NO_BASE}")
        if self.loop and (refusal := explain_impossible_adapters(self.loop)):
            raise ValueError(refusal)
        return self

    @model_validator(mode="before")
    @classmethod
    def _set_script_defaults(cls, values: Any) -> Any:
        """Set ``max_restarts`` to 0 for a script, unless the recipe sets it."""
        if isinstance(values, dict) and values.get("script"):
            # A value in the recipe takes precedence over this default.
            return {"max_restarts": 0, **values}
        return values

    @model_validator(mode="after")
    def _check_program(self) -> Self:
        programs = [name for name in PROGRAMS if getattr(self, name) is not None]
        if len(programs) != 1:
            problem = f"{' and '.join(programs)} are set" if programs else "none is set"
            raise ValueError(
                f"{', '.join(PROGRAMS)}: {problem}; set one: loop for a workload of Trainyard's, "
                "script for a training script of your own"
            )
        if self.loop:
            self._check_loop(self.loop)
        elif self.script:
            self._check_script(self.script)
        return self

    @model_validator(mode="after")
    def _check_field_combinations(self) -> Self:
        if self.training_plan and (self.spot or self.fallback_instance_types):
            raise ValueError(
                "training_plan: its machines are reserved, and of one type; remove "
                f"{'spot' if self.spot else 'fallback_instance_types'}, or the plan"
            )
        wait = self.max_wait_minutes
        if self.spot and wait is None:
            raise ValueError("spot needs max_wait_minutes, at least max_runtime_minutes")
        if self.spot and wait is not None and wait < self.max_runtime_minutes:
            raise ValueError(
                f"max_wait_minutes {wait} is less than max_runtime_minutes "
                f"{self.max_runtime_minutes}; SageMaker refuses that: raise max_wait_minutes"
            )
        if self.spot and self.keep_alive_minutes:
            raise ValueError(
                f"keep_alive_minutes {self.keep_alive_minutes} cannot be combined with spot: "
                "SageMaker keeps no warm pool of spot instances; set keep_alive_minutes to 0, or "
                "spot to false"
            )
        if self.launcher == "mpi" and self.instance_count > 1 and not self.processes_per_node:
            raise ValueError(
                f"launcher mpi on {self.instance_count} instances needs processes_per_node: "
                "mpirun needs the number of all ranks; set it to the GPUs of a node"
            )
        if (self.input_mode == "FSxLustre") != (self.fsx is not None):
            raise ValueError("input_mode FSxLustre and the fsx section go together: set both")
        if self.fsx and self.fallback_instance_types:
            raise ValueError(
                "fsx cannot be combined with fallback_instance_types: a run on another type reuses "
                "the shards of the run before it, and the file system's folder is named by the run"
            )
        return self

    @model_validator(mode="after")
    def _check_fallback_types(self) -> Self:
        types = (self.instance_type, *self.fallback_instance_types)
        for name in self.fallback_instance_types:
            if types.count(name) > 1:
                raise ValueError(
                    f"fallback_instance_types: {name} is listed twice, or is also instance_type"
                )
            if self.loop and (
                refusal := explain_unfit_machines(self.loop.strategy, self.launcher, name)
            ):
                raise ValueError(f"fallback_instance_types: {refusal}")
        return self

    def _check_loop(self, loop: TrainConfig) -> None:
        """Raise ValueError if another field does not fit the training loop."""
        script_fields = [
            name
            for name, field in type(self).model_fields.items()
            if name in SCRIPTS_ALONE
            and getattr(self, name) != field.get_default(call_default_factory=True)
        ]
        if script_fields:
            raise ValueError(
                f"{', '.join(script_fields)}: not for the loop; remove it, or set script"
            )
        if self.launcher not in ("torchrun", "mpi"):
            raise ValueError(f"launcher {self.launcher} is only for a script; choose torchrun")
        if refusal := explain_unfit_machines(loop.strategy, self.launcher, self.instance_type):
            raise ValueError(refusal)
        if self.ranks:
            try:
                loop.count_micro_batches(self.ranks)
            except ValueError as error:
                raise ValueError(f"loop: {error}") from None

    def _check_script(self, script: str) -> None:
        """Raise ValueError if another field does not fit the script."""
        if self.start_from:
            raise ValueError(
                "start_from is for the training loop; give the script its initial model as a "
                "channel: channels: {start: s3://…}, which it finds in $SM_CHANNEL_START"
            )
        if (self.launcher == "own") != (self.driver is not None):
            raise ValueError("launcher own and driver go together: set both, or neither")
        if self.processes_per_node and self.launcher in ("none", "own"):
            raise ValueError(
                f"processes_per_node is {self.processes_per_node}, and launcher {self.launcher} "
                "starts one process per node; remove it, or set launcher to torchrun"
            )
        if self.max_restarts and self.launcher != "torchrun":
            raise ValueError(
                f"max_restarts is {self.max_restarts}: torchrun starts processes again, launcher "
                f"{self.launcher} does not; remove it, and set retry for the whole job"
            )
        suffixes = (".py", ".sh") if self.launcher == "none" else (".py",)
        if not script.endswith(suffixes):
            raise ValueError(
                f"script: {script!r} must end in {' or '.join(suffixes)} with launcher "
                f"{self.launcher}"
            )


# What AWS documents about strategies that depend on its libraries: machines, images, launchers.
#
# SMDDP   SageMaker Developer Guide, "Compatibility with the SMDDP library optimized for AWS
#         infrastructure" (model-parallel-core-features-v2-smddp-allgather: "supports P4 and P4de
#         instances") and "Supported frameworks, AWS Regions, and instances types"
#         (distributed-data-parallel-support); its release notes (data-parallel-release-notes) have
#         PyTorch 2.3.0 as the last framework image with it; 2.4.1 is only in SMP images. On P3 it
#         does not optimize anything any more.
# SMP v2  "Supported frameworks and AWS Regions" (distributed-model-parallel-support-v2) and the
#         release notes (model-parallel-release-notes): one image for each version of PyTorch.
# MPI     sagemaker/train/container_drivers/distributed_drivers/mpi_driver.py of SDK 3.27.

P4 = ("ml.p4d.24xlarge", "ml.p4de.24xlarge")
INSTANCE_TYPES: Mapping[str, tuple[str, ...]] = {
    "smddp": P4,
    "smp": (*P4, "ml.p5.48xlarge", "ml.p5e.48xlarge"),
    "deepspeed": ("ml.p", "ml.g"),
}
"""Instance types, or their prefixes, that a strategy needs. Other strategies run on any type."""

LAUNCHERS = {"smddp": "torchrun", "smp": "torchrun"}
"""The only launcher that can start a strategy. Any launcher can start the other strategies."""

SMP_IMAGES = {"2.4.1": "cu121", "2.5.1": "cu124"}
"""Mapping of PyTorch version to CUDA version of AWS's SMP images, which also contain SMDDP. The SMP
image of PyTorch 2.3.1 is left out, and so is the framework image of 2.3.0, the last with SMDDP: the
loop does not run with them, because torch.nn.RMSNorm is new in 2.4.
"""

REQUIREMENTS = {"deepspeed": ("deepspeed",), "mpi": ("mpi4py", "paramiko")}
"""Packages that the container installs for a strategy or launcher, in the locked versions. AWS's
MPI driver imports both of its packages.
"""


def explain_unfit_machines(strategy: str, launcher: str, instance_type: str) -> str | None:
    """Return why this launcher cannot start the strategy on such machines, or None if it can."""
    required_launcher = LAUNCHERS.get(strategy, launcher)
    if launcher != required_launcher:
        return (
            f"launcher {launcher} cannot start strategy {strategy}: set launcher to "
            f"{required_launcher}"
        )
    known_types = INSTANCE_TYPES.get(strategy)
    if known_types and not instance_type.startswith(known_types):
        machine_text = (
            "GPUs (ml.p…, ml.g…)" if strategy == "deepspeed" else f"one of {', '.join(known_types)}"
        )
        return (
            f"instance_type {instance_type} is not for strategy {strategy}, which needs "
            f"{machine_text}: choose one, or set loop.strategy to ddp or fsdp"
        )
    return None


def explain_missing_library(
    strategy: str, pytorch_version: str, training_image: str | None
) -> str | None:
    """Return why the image does not contain a strategy's library.

    Return None if it does, or if the recipe names its own training image.
    """
    if training_image:
        return None
    if strategy == "smddp":
        return (
            "images.training: strategy smddp needs an image that you name, such as AWS's SMP image "
            f"of PyTorch {' or '.join(SMP_IMAGES)}: AWS's PyTorch images since 2.4 lack its library"
        )
    if strategy == "smp" and pytorch_version not in SMP_IMAGES:
        return (
            f"images.pytorch_version: is {pytorch_version!r}; AWS has images with strategy "
            f"{strategy} for {', '.join(SMP_IMAGES)}: choose one, or name images.training"
        )
    return None


def list_requirements(strategy: str, launcher: str) -> tuple[str, ...]:
    """Return the packages that the container has to install for the strategy and the launcher."""
    return REQUIREMENTS.get(strategy, ()) + REQUIREMENTS.get(launcher, ())
