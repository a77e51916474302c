"""Convert a recipe and its layouts for ``foresight``, and write the recipe of an advised layout."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pipelines.advice import traced_shapes
from pipelines.advice.training_setting import (
    LANGUAGE,
    build_format_fields,
    build_model_fields,
    convert_precision,
    refuse_adapters_and_float8,
)
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import move_to_environment
from pipelines.recipe.extended_recipe import FIELD
from pipelines.recipe.read_recipe import load_recipe, override_field
from training.config import TrainConfig
from training.layout import FSDP
from trainyard.common import atomic_file
from trainyard.common.errors import ForesightError
from trainyard.foresight import model_shapes
from trainyard.foresight.advice import Candidate
from trainyard.foresight.layouts import Space
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import Shapes

ERROR_CHARACTERS = 300  # maximum length of a process's error output in a message


@dataclass(frozen=True, slots=True)
class RecipeModel:
    """Model that a recipe trains, independent of the machines."""

    fields: dict[str, Any]
    """Fields of a ``Setting`` that describe the model."""

    shapes: Shapes | None
    """Traced shapes of the model; None if they are computed by formula from the fields."""

    assumptions: tuple[str, ...]


def derive_model(recipe: Recipe, path: Path, data: Path | None) -> RecipeModel:
    """Return the model that a recipe trains.

    Args:
        recipe: the recipe.
        path: file of the recipe.
        data: folder of shards of the train split, for a workload that needs data to be traced.

    Raises:
        ForesightError: the model cannot be predicted; the message says why.
    """
    if recipe.train.loop is None or recipe.workload.name == LANGUAGE:
        fields, assumptions = build_model_fields(recipe)
        return RecipeModel(fields, None, assumptions)
    shapes_key = _make_shapes_key(recipe)
    shapes = model_shapes.parse_shapes(_trace_shapes(recipe, path, shapes_key.precision, data))
    loop = recipe.train.loop
    fields = {
        "precision": shapes_key.precision,
        "compile": loop.compile,
        "deepspeed": loop.strategy == "deepspeed",
    }
    return RecipeModel({**model_shapes.compute_widths(shapes), **fields}, shapes, ())


def store_traced_shapes(recipe: Recipe, path: Path, data: Path | None) -> Path:
    """Trace the recipe's model, and store its shapes for plan, validate, budget and watch.

    Return the file with the shapes.

    Raises:
        ForesightError: the model cannot be traced, or needs no tracing; the message says why.
    """
    if recipe.train.loop is None or recipe.workload.name == LANGUAGE:
        build_model_fields(recipe)
        raise ForesightError("--trace: the language model is predicted by formula; omit --trace")
    shapes_key = _make_shapes_key(recipe)
    return traced_shapes.store_shapes(
        shapes_key, _trace_shapes(recipe, path, shapes_key.precision, data)
    )


def _make_shapes_key(recipe: Recipe) -> traced_shapes.ShapesKey:
    """Return the key of the shapes to trace for a recipe with a loop."""
    loop, tuning = recipe.train.loop, recipe.train.tuning
    assert loop is not None  # noqa: S101 (the callers have checked)
    precision = build_format_fields(loop, tuning)["precision"]
    refuse_adapters_and_float8(recipe.workload.name, tuning, precision)
    settings = recipe.workload_config.model_dump(mode="json")
    return traced_shapes.ShapesKey(recipe.workload.name, settings, precision)


def _trace_shapes(recipe: Recipe, path: Path, precision: str, data: Path | None) -> dict[str, Any]:
    """Return the output of ``python -m training.tools.shapes`` for the recipe's model."""
    command = [sys.executable, "-m", "training.tools.shapes", "--workload", recipe.workload.name]
    command += ["--workload-config", json.dumps(recipe.workload.config), "--precision", precision]
    command += ["--data", str(data)] if data else []
    source = recipe.workload.source
    import_paths = [str((path.parent / source).resolve())] if source else []
    search = os.pathsep.join([*import_paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    # In a separate process, because tracing needs torch.
    process = subprocess.run(  # noqa: S603 (our own module; no shell)
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": search},
    )
    if process.returncode:
        message = " ".join(process.stderr.split())[-ERROR_CHARACTERS:]
        hint = (
            ""
            if data
            else "; a workload that needs data to be traced needs --data, shards of its train split"
        )
        raise ForesightError(
            f"python -m training.tools.shapes could not trace the model: {message}{hint}"
        )
    return json.loads(process.stdout)


ZERO = {"optimizer": 1, "gradients": 2, "full": 3}
"""DeepSpeed's ZeRO stage for each way of sharding."""
ONE_PART = (1,)


def build_search_space(recipe: Recipe, precision: str) -> Space:
    """Return the layouts that our training loop supports and the recipe's checks allow.

    They are DeepSpeed's ZeRO stages if the recipe names that strategy; else DDP and FSDP with all
    degrees of parallelism.
    """
    loop = recipe.train.loop
    assert loop is not None  # noqa: S101 (only recipes with a loop get advice)
    refuse = make_layout_check(recipe)
    if loop.strategy == "deepspeed":
        return Space(
            shard=("optimizer", "gradients", "full"),
            tensor=ONE_PART,
            pipeline=ONE_PART,
            context=ONE_PART,
            hybrid=False,
            precision=(precision,),
            refuse=refuse,
        )
    return Space(shard=("none", "gradients", "full"), precision=(precision,), refuse=refuse)


def build_loop_fields(setting: Setting, loop: TrainConfig) -> dict[str, Any]:
    """Return the fields of ``train.loop`` that give the training the layout of ``setting``.

    Fields that only the recipe's current layout needs are set to their defaults.
    """
    defaults = {name: TrainConfig.model_fields[name].default for name in FSDP}
    layout: dict[str, Any] = {
        **{name: value for name, value in defaults.items() if getattr(loop, name) != value},
        "strategy": "ddp" if setting.shard == "none" else "fsdp",
        "shard_degree": setting.shard_degree,
        "tensor_parallel": setting.tensor,
        "context_parallel": setting.context,
        "pipeline_parallel": setting.pipeline,
        "pipeline_schedule": "interleaved_1f1b" if setting.interleave > 1 else "1f1b",
        "pipeline_stages_per_rank": setting.interleave if setting.interleave > 1 else 0,
        "reshard_after_forward": _choose_resharding(setting),
        "micro_batch": setting.micro_batch,
        "activation_checkpointing": setting.recompute,
    }
    if setting.tensor > 1:
        layout["sequence_parallel"] = setting.sequence_parallel
    if layout["strategy"] == "fsdp":
        kept_fields = {
            "float8_all_gather",
            "param_dtype",
            "reduce_dtype",
            "forward_prefetch",
            "backward_prefetch",
        }
        layout = {name: value for name, value in layout.items() if name not in kept_fields}
    if loop.strategy == "deepspeed" and setting.shard != "none":
        layout |= {"strategy": "deepspeed", "zero_stage": ZERO[setting.shard]}
        layout["reshard_after_forward"] = "default"
    return layout


def _choose_resharding(setting: Setting) -> str:
    """Return the value of ``reshard_after_forward`` for a layout.

    By default a pipeline keeps gathered weights until the backward pass, and other layouts do not.
    """
    if setting.shard == "gradients":
        return "default" if setting.pipeline > 1 else "never"
    return "always" if setting.shard == "full" and setting.pipeline > 1 else "default"


def make_layout_check(recipe: Recipe) -> Callable[[Setting], str | None]:
    """Return a function that says why our loop or workload cannot use a layout; None if it can."""
    loop, spec, settings = recipe.train.loop, recipe.workload_spec, recipe.workload_config
    assert loop is not None  # noqa: S101
    current = loop.model_dump()

    def refuse(setting: Setting) -> str | None:
        """Return why the layout cannot be used; None if it can."""
        if loop.precision != "auto" and setting.precision != convert_precision(loop):
            return (
                f"a {setting.gpu} does not support {loop.precision}: set train.loop.precision to "
                "float16, or use other machines"
            )
        try:
            changed_loop = TrainConfig.model_validate(
                {**current, **build_loop_fields(setting, loop)}
            )
            changed_loop.count_micro_batches(setting.gpus)
        except ValidationError as error:
            return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        except ValueError as error:
            return str(error)
        return spec.refuse_split(
            settings, setting.tensor, changed_loop.stages
        ) or spec.refuse_layout(settings, changed_loop)

    return refuse


def find_train_changes(recipe: Recipe, candidate: Candidate) -> dict[str, Any]:
    """Return the fields of section ``train`` that the candidate changes, with their new values."""
    train = recipe.train
    assert train.loop is not None  # noqa: S101
    loop = _find_changes(train.loop, build_loop_fields(candidate.setting, train.loop))
    machines = {"instance_type": candidate.offer.name, "instance_count": candidate.nodes}
    other_types = tuple(
        name for name in train.fallback_instance_types if name != candidate.offer.name
    )
    train_changes = _find_changes(
        train, {**machines, "processes_per_node": 0, "fallback_instance_types": other_types}
    )
    if "fallback_instance_types" in train_changes:
        train_changes["fallback_instance_types"] = list(other_types)  # a list, as in YAML
    return train_changes | ({"loop": loop} if loop else {})


def _find_changes(section: Any, target_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target values that differ from the recipe section's present values."""
    return {name: value for name, value in target_values.items() if getattr(section, name) != value}


def write_advised_recipe(
    output_path: Path,
    path: Path,
    overrides: Sequence[str],
    train_changes: Mapping[str, Any],
    comments: Sequence[str],
    environment: str | None = None,
) -> None:
    """Write a recipe that extends the recipe ``path`` and sets an advised layout.

    Args:
        output_path: file to write.
        path: recipe that it extends.
        overrides: ``FIELD=VALUE`` of other fields to change.
        train_changes: changed fields of section ``train``.
        comments: comment lines for the top of the file.
        environment: environment of the recipe in which the fields are changed; None for none.

    Raises:
        RecipeError: the result is not a valid recipe; nothing is written.
    """
    tree: dict[str, Any] = {FIELD: os.path.relpath(path.resolve(), output_path.resolve().parent)}
    for assignment in overrides:
        override_field(tree, assignment)
    for name, value in train_changes.items():
        section = tree.setdefault("train", {})
        section[name] = {**section.get(name, {}), **value} if name == "loop" else value
    _validate_changed_recipe(path, overrides, train_changes, environment)
    comment = "".join(f"# {line}\n" for line in comments)
    text = yaml.safe_dump(
        move_to_environment(tree, environment), sort_keys=False, allow_unicode=True, width=100
    )
    atomic_file.write_file(output_path, comment + text)


def _validate_changed_recipe(
    path: Path, overrides: Sequence[str], train_changes: Mapping[str, Any], environment: str | None
) -> None:
    """Read the recipe with all the changes, in the same way as the new file will be read."""
    assigned_fields = {name: value for name, value in train_changes.items() if name != "loop"}
    assigned_fields |= {
        f"loop.{name}": value for name, value in train_changes.get("loop", {}).items()
    }
    assignments = [
        *overrides,
        *(f"train.{name}={value}" for name, value in assigned_fields.items()),
    ]
    load_recipe(path, assignments, environment)
