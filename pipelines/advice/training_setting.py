"""Convert one of our trainings, from a recipe or a training job, to foresight's ``Setting``.

A job says as much as the recipe that it was compiled from: its hyperparameters contain the settings
of the loop and of the workload. So any job can be predicted, whether it is only defined or has
already run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pipelines.advice import traced_shapes
from pipelines.recipe.config import Recipe
from steps.workload_settings import overlay_settings
from training.config import TrainConfig
from training.weights.finetuning.adapters import Tuning, parse_tuning
from training.workloads import parse_settings
from training.workloads.language_model.config import LanguageModelConfig
from trainyard.common.errors import ForesightError, TrainingError
from trainyard.foresight.cloud_machines import find_gpu
from trainyard.foresight.layouts import BEFORE_AMPERE
from trainyard.foresight.memory import Memory
from trainyard.foresight.model_shapes import compute_widths
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import Shapes
from trainyard.instance_types import MACHINES
from trainyard.language.evaluation import iter_unknowns
from trainyard.validate.rules.job_view import PROCESSES, Job
from trainyard.validate.rules.tuning_limits import INTEGERS, Range, iter_searched_ranges

LANGUAGE = "language_model"
BYTES = 257
"""Vocabulary size of the tokenizer ``bytes``: 256 bytes and an end-of-text token."""

SHARDS = {"fsdp": "full", "smp": "full"}
ZERO = {1: "optimizer", 2: "gradients", 3: "full"}
PRECISIONS = {"auto": "bf16", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Mapping of our names to foresight's, for a GPU that multiplies in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTraining:
    """A training run with our loop, in the form in which it can be predicted."""

    setting: Setting
    loop: TrainConfig
    shapes: Shapes | None = None
    """Traced shapes of the model; None if they are computed by formula from the setting."""

    assumptions: tuple[str, ...] = ()
    """Assumptions about values that neither recipe nor job contains."""

    @property
    def steps(self) -> int:
        """Total number of optimizer steps."""
        return self.loop.max_steps


def derive_recipe_training(recipe: Recipe, shapes: Shapes | None = None) -> LoopTraining:
    """Return the training of a recipe.

    Args:
        recipe: the recipe.
        shapes: shapes of the model if they were just traced; None: those in the stored file.

    Raises:
        ForesightError: the training cannot be predicted; the message says why.
    """
    train = recipe.train
    if train.loop is None:
        raise ForesightError(f"the computation of {train.script} is not known")
    settings = recipe.workload_config.model_dump(mode="json")
    cluster = _build_gpu_fields(train.instance_type, train.instance_count, train.processes_per_node)
    return _make_training(
        train.loop, _choose_model(recipe.workload.name, settings, shapes), train.tuning, cluster
    )


def build_model_fields(recipe: Recipe) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields of a Setting that say what a recipe trains, and the assumptions made.

    They include the number formats, but not the machines and the layout.

    Raises:
        ForesightError: the training cannot be predicted; the message says why.
    """
    train = recipe.train
    if train.loop is None:
        raise ForesightError(f"the computation of {train.script} is not known")
    numbers = build_format_fields(train.loop, train.tuning)
    model, assumptions = _build_dimension_fields(
        LanguageModelConfig.model_validate(recipe.workload.config)
    )
    return {**model, **numbers, "compile": train.loop.compile}, assumptions


def derive_job_training(
    hyperparameters: Mapping[str, str],
    instance_type: str,
    instance_count: int,
    ranks_per_node: int | None = None,
) -> LoopTraining:
    """Return the training of a job, from its request or from DescribeTrainingJob's response.

    Args:
        hyperparameters: hyperparameters of the job.
        instance_type: type of its machines.
        instance_count: number of its machines.
        ranks_per_node: number in the environment (PET_NPROC_PER_NODE); None: one per GPU.

    Raises:
        ForesightError: the job does not run our loop, or cannot be predicted; the message says why.
    """
    if "workload" not in hyperparameters:
        raise ForesightError("it does not run Trainyard's loop, so its computation is not known")
    fields = {name: v for name, v in hyperparameters.items() if name in TrainConfig.model_fields}
    try:
        settings = parse_settings(hyperparameters.get("workload_config", "{}"))
        settings = overlay_settings(settings, hyperparameters)
        workload = _choose_model(hyperparameters["workload"], settings)
        tuning = parse_tuning(hyperparameters.get("tuning", ""))
        loop = TrainConfig.model_validate(fields)
    except (ValidationError, TrainingError) as error:
        raise ForesightError(f"its hyperparameters are not those of our loop: {error}") from None
    cluster = _build_gpu_fields(instance_type, instance_count, ranks_per_node or 0)
    return _make_training(loop, workload, tuning, cluster)


def build_largest_hyperparameters(job: Job) -> dict[str, Any]:
    """Return the hyperparameters of a job.

    For a tuning job, return those with the largest value of each range, because a larger width or
    batch takes more memory.
    """
    largest = {
        search_range.name: _find_largest(search_range)
        for search_range in iter_searched_ranges(job)
        if search_range.name
    }
    known_values = {name: value for name, value in largest.items() if value is not None}
    return known_values | job.hyperparameters


def _find_largest(search_range: Range) -> Any:
    """Return the largest number of a search range, or any of its values if they are words.

    Return None if the value is a pipeline parameter, which is known only in an execution.
    """
    if search_range.high is not None:
        return int(search_range.high) if search_range.kind == INTEGERS else search_range.high
    return max(search_range.values, key=_parse_number, default=None)


def _parse_number(value: Any) -> float:
    """Return a hyperparameter's value as a number; a word counts as less than all numbers."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("-inf")


def derive_request_training(job: Job) -> LoopTraining:
    """Return the training of a job in a definition, with its parameters at their defaults.

    Raises:
        ForesightError: the training cannot be predicted; the message says why.
    """
    hyperparameters = build_largest_hyperparameters(job)
    if any(iter_unknowns(hyperparameters)) or not job.instance_type or not job.nodes:
        raise ForesightError("its machines or hyperparameters are known only in a run")
    texts = {name: str(value) for name, value in hyperparameters.items()}
    return derive_job_training(texts, job.instance_type, job.nodes, job.ranks_per_node)


def derive_described_training(job: Mapping[str, Any]) -> LoopTraining:
    """Return the training of a job from DescribeTrainingJob's response.

    Raises:
        ForesightError: the training cannot be predicted; the message says why.
    """
    resources = job["ResourceConfig"]
    if "InstanceType" not in resources:
        raise ForesightError("the job has instances of several types")
    ranks = job.get("Environment", {}).get(PROCESSES, "")
    return derive_job_training(
        job.get("HyperParameters", {}),
        resources["InstanceType"],
        resources["InstanceCount"],
        int(ranks) if ranks.isdecimal() else None,
    )


@dataclass(frozen=True, slots=True)
class _TracedModel:
    """A model that no formula describes, so that its shapes have to be traced."""

    workload: str
    config: Mapping[str, Any]
    shapes: Shapes | None


def _choose_model(
    workload: str, config: Mapping[str, Any], shapes: Shapes | None = None
) -> LanguageModelConfig | _TracedModel:
    """Return the language model's config, or a traced model for any other workload."""
    if workload == LANGUAGE:
        return LanguageModelConfig.model_validate(config)
    return _TracedModel(workload, config, shapes)


def _build_gpu_fields(instance_type: str, nodes: int, ranks_per_node: int) -> dict[str, Any]:
    """Return the fields of a setting that describe the GPUs."""
    machine = MACHINES.get(instance_type)
    if machine is None:
        raise ForesightError(f"{instance_type} is not in trainyard/instance_types.csv")
    if machine.kind == "cpu":
        raise ForesightError(f"{instance_type} has no GPU")
    gpu, ranks = find_gpu(machine), ranks_per_node or machine.accelerators
    if gpu is None:
        raise ForesightError(
            f"{instance_type} has {machine.accelerator}, for which foresight has no training "
            "figures"
        )
    if ranks > machine.accelerators:
        raise ForesightError(
            f"{ranks} ranks share the {machine.accelerators} accelerators of {instance_type}"
        )
    return {
        "gpu": gpu.name,
        "gpus": nodes * ranks,
        "gpus_per_node": ranks,
        "node_gbps": machine.network_gbps,
    }


def _make_training(
    loop: TrainConfig,
    trained_model: LanguageModelConfig | _TracedModel,
    tuning: Tuning,
    cluster: Mapping[str, Any],
) -> LoopTraining:
    """Return the training of a model with a loop on a cluster.

    Raises:
        ForesightError: the training cannot be predicted; the message says why.
    """
    numbers, shapes = build_format_fields(loop, tuning), None
    # These have no bfloat16, so the job itself takes float16.
    if loop.precision == "auto" and cluster["gpu"] in BEFORE_AMPERE:
        numbers["precision"] = "fp16"
    if isinstance(trained_model, _TracedModel):
        model, shapes, assumptions = _find_shapes(trained_model, tuning, numbers["precision"])
    else:
        model, assumptions = _build_dimension_fields(trained_model)
    try:
        layout = _build_layout_fields(loop, cluster["gpus"])
        setting = Setting.model_validate({**model, **layout, **numbers, **cluster})
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ForesightError(f"the layout is impossible: {message}") from None
    except ValueError as error:
        raise ForesightError(f"the layout is impossible: {error}") from None
    return LoopTraining(setting=setting, loop=loop, shapes=shapes, assumptions=assumptions)


def _find_shapes(
    trained_model: _TracedModel, tuning: Tuning, precision: str
) -> tuple[dict[str, Any], Shapes, tuple[str, ...]]:
    """Return the fields on which a traced model's layouts depend, its shapes, and assumptions."""
    refuse_adapters_and_float8(trained_model.workload, tuning, precision)
    shapes = trained_model.shapes
    assumptions: tuple[str, ...] = ()
    if shapes is None:
        shapes, assumptions = traced_shapes.find_shapes(
            traced_shapes.ShapesKey(trained_model.workload, trained_model.config, precision)
        )
    return compute_widths(shapes), shapes, assumptions


def refuse_adapters_and_float8(workload: str, tuning: Tuning, precision: str) -> None:
    """Raise ForesightError if a model whose shapes are traced has adapters or uses float8."""
    for feature, is_used in (("adapters", tuning.adapters), ("float8", precision == "fp8")):
        if is_used:
            raise ForesightError(f"{feature} in the model of workload {workload} are not modelled")


def _build_dimension_fields(config: LanguageModelConfig) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the model's dimensions as fields of a Setting, and the assumptions made."""
    if config.head_width * config.heads != config.dim:
        raise ForesightError(
            f"a head width of {config.head_width} that is not dim / heads ({config.dim} / "
            f"{config.heads}) is not modelled"
        )
    vocabulary = config.vocabulary or (BYTES if config.tokenizer == "bytes" else None)
    vocab = vocabulary or Setting.model_fields["vocab"].default
    assumptions = (
        () if vocabulary else (f"a vocabulary of {vocab:,}: the true size is in tokenizer.json",)
    )
    return {
        "layers": config.layers,
        "hidden": config.dim,
        "heads": config.heads,
        "kv_heads": config.groups,
        "ffn": config.hidden,
        "gated": True,
        "vocab": vocab,
        "tied": config.tie_embeddings,
        "sequence": config.context_length,
    }, assumptions


def _build_layout_fields(loop: TrainConfig, world: int) -> dict[str, Any]:
    """Return the loop's layout on ``world`` ranks, as fields of a Setting."""
    shard = SHARDS.get(loop.strategy, "none")
    if loop.strategy == "deepspeed":
        shard = ZERO[loop.zero_stage]
    reshard = loop.reshard_after_forward
    if shard == "full" and (
        reshard == "never" or (reshard == "default" and loop.pipeline_parallel > 1)
    ):
        shard = "gradients"  # because weights stay gathered until the end of the step
    return {
        "micro_batch": loop.micro_batch,
        "accumulation": loop.count_micro_batches(world),
        "tensor": loop.tensor_parallel,
        "sequence_parallel": loop.sequence_parallel and loop.tensor_parallel > 1,
        "float8_gather": loop.float8_all_gather,
        "pipeline": loop.pipeline_parallel,
        "interleave": loop.stages // loop.pipeline_parallel,
        "context": loop.context_parallel,
        "shard": shard,
        "shard_degree": loop.shard_degree,
        "offload": "all" if loop.cpu_offload else "none",
        "recompute": loop.activation_checkpointing,
        "compile": loop.compile,
    }


def convert_precision(loop: TrainConfig) -> str:
    """Return foresight's name of the precision in which the loop multiplies matrices.

    Raises:
        ForesightError: foresight does not model this precision.
    """
    if loop.precision not in PRECISIONS:
        raise ForesightError(
            f"precision {loop.precision} is only for comparing loss curves, and is not modelled"
        )
    return PRECISIONS[loop.precision] if loop.float8 == "none" else "fp8"


def build_format_fields(loop: TrainConfig, tuning: Tuning) -> dict[str, Any]:
    """Return the fields of a Setting for the number formats and the weights that are trained.

    Raises:
        ForesightError: the combination is not modelled.
    """
    precision = convert_precision(loop)
    if tuning.freeze:
        raise ForesightError("frozen weights (tuning.freeze) are not modelled")
    return {
        "precision": precision,
        "optimizer": "adamw",
        "lora_rank": tuning.adapters.rank if tuning.adapters else 0,
        "deepspeed": loop.strategy == "deepspeed",
    }


# Check that our training fits into its devices' memory. The messages name the recipe's fields.

WHEN = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "step": "in the optimizer's step",
    "save": "while it saves",
}
FIT = (
    "python -m pipelines.advise --recipe FILE finds a layout that fits, or says what would; "
    "--apply writes it"
)
"""Advice if the training does not fit into memory."""


def describe_memory_need(training: LoopTraining, memory: Memory) -> str:
    """Describe how much of each device's memory the training needs.

    It names the part of a step in which the need is largest.
    """
    device, peak = training.setting.device, memory.peak
    return (
        f"needs {peak.p50:.1f} GiB (8 of 10 times {peak.p10:.1f} – {peak.p90:.1f}) of the "
        f"{memory.usable_gib:.1f} of its {device.name}, most {WHEN[memory.when]}"
    )
