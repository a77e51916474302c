"""A recipe and its layouts in foresight's words, and the recipe that adopts an advised one."""

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
    model_of,
    numbers_of,
    precision_of,
    refuse_traced,
)
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import placed
from pipelines.recipe.extended_recipe import FIELD
from pipelines.recipe.read_recipe import load, override
from training.config import TrainConfig
from training.layout import FSDP
from trainyard.common import atomic_file
from trainyard.common.errors import ForesightError
from trainyard.foresight import model_shapes
from trainyard.foresight.advice import Candidate
from trainyard.foresight.layouts import Space
from trainyard.foresight.model_shapes import Shapes
from trainyard.foresight.setting import Setting

SHOWN = 300  # characters of a process's error output


@dataclass(frozen=True, slots=True)
class Trained:
    """Model that a recipe trains, whichever machines do it."""

    fields: dict[str, Any]
    """Fields of a ``Setting`` that describe the model."""

    shapes: Shapes | None
    """Traced shapes of the model; None: computed by formula from the fields."""

    assumed: tuple[str, ...]


def trained(recipe: Recipe, path: Path, data: Path | None) -> Trained:
    """Return the model that the recipe in ``path`` trains.

    Args:
        data: a folder of shards of the train split, for a workload that needs data to be traced.

    Raises:
        ForesightError: it cannot be foreseen; says why.
    """
    if recipe.train.loop is None or recipe.workload.name == LANGUAGE:
        fields, assumed = model_of(recipe)
        return Trained(fields, None, assumed)
    of = _of(recipe)
    read = model_shapes.read(_traced(recipe, path, of.precision, data))
    loop = recipe.train.loop
    fields = {
        "precision": of.precision,
        "compile": loop.compile,
        "deepspeed": loop.strategy == "deepspeed",
    }
    return Trained({**model_shapes.widths(read), **fields}, read, ())


def keep(recipe: Recipe, path: Path, data: Path | None) -> Path:
    """Trace the recipe's model, keep its shapes for plan, validate, budget and watch, and return
    the file.

    Raises:
        ForesightError: it cannot be traced, or needs no tracing; says why.
    """
    if recipe.train.loop is None or recipe.workload.name == LANGUAGE:
        model_of(recipe)
        raise ForesightError("--trace: the language model is foreseen by formula; leave it out")
    of = _of(recipe)
    return traced_shapes.keep(of, _traced(recipe, path, of.precision, data))


def _of(recipe: Recipe) -> traced_shapes.Of:
    """Return the key of the shapes to trace for a recipe with a loop."""
    loop, tuning = recipe.train.loop, recipe.train.tuning
    assert loop is not None  # noqa: S101 (the caller has checked)
    precision = numbers_of(loop, tuning)["precision"]
    refuse_traced(recipe.workload.name, tuning, precision)
    settings = recipe.workload_config.model_dump(mode="json")
    return traced_shapes.Of(recipe.workload.name, settings, precision)


def _traced(recipe: Recipe, path: Path, precision: str, data: Path | None) -> dict[str, Any]:
    """Return what ``python -m training.shapes`` prints; it runs in a process of its own, as it
    needs torch.
    """
    command = [sys.executable, "-m", "training.shapes", "--workload", recipe.workload.name]
    command += ["--workload-config", json.dumps(recipe.workload.config), "--precision", precision]
    command += ["--data", str(data)] if data else []
    source = recipe.workload.source
    places = [str((path.parent / source).resolve())] if source else []
    search = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(  # noqa: S603 (our own module; no shell)
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": search},
    )
    if ended.returncode:
        why = " ".join(ended.stderr.split())[-SHOWN:]
        seen = (
            ""
            if data
            else "; a workload that needs data to be traced needs --data, shards of its train split"
        )
        raise ForesightError(f"python -m training.shapes could not trace the model: {why}{seen}")
    return json.loads(ended.stdout)


ZERO = {"optimizer": 1, "gradients": 2, "full": 3}
ALONE = (1,)


def space(recipe: Recipe, precision: str) -> Space:
    """Return the layouts that our loop supports: DeepSpeed's stages where the recipe names that
    strategy, else DDP and FSDP with every degree; each as the recipe's checks allow it.
    """
    loop = recipe.train.loop
    assert loop is not None  # noqa: S101 (only a loop's recipe is advised)
    refuse = refusing(recipe)
    if loop.strategy == "deepspeed":
        return Space(
            shard=("optimizer", "gradients", "full"),
            tensor=ALONE,
            pipeline=ALONE,
            context=ALONE,
            hybrid=False,
            precision=(precision,),
            refuse=refuse,
        )
    return Space(shard=("none", "gradients", "full"), precision=(precision,), refuse=refuse)


def fields(setting: Setting, loop: TrainConfig) -> dict[str, Any]:
    """Return the fields of ``train.loop`` that lay the training out as ``setting`` says; those that
    only the recipe's other layout needed go back to their defaults.
    """
    usual = {name: TrainConfig.model_fields[name].default for name in FSDP}
    layout: dict[str, Any] = {
        **{name: value for name, value in usual.items() if getattr(loop, name) != value},
        "strategy": "ddp" if setting.shard == "none" else "fsdp",
        "shard_degree": setting.shard_degree,
        "tensor_parallel": setting.tensor,
        "context_parallel": setting.context,
        "pipeline_parallel": setting.pipeline,
        "pipeline_schedule": "interleaved_1f1b" if setting.interleave > 1 else "1f1b",
        "pipeline_stages_per_rank": setting.interleave if setting.interleave > 1 else 0,
        "reshard_after_forward": _resharding(setting),
        "micro_batch": setting.micro_batch,
        "activation_checkpointing": setting.recompute,
    }
    if setting.tensor > 1:
        layout["sequence_parallel"] = setting.sequence_parallel
    if layout["strategy"] == "fsdp":
        kept = {
            "float8_all_gather",
            "param_dtype",
            "reduce_dtype",
            "forward_prefetch",
            "backward_prefetch",
        }
        layout = {name: value for name, value in layout.items() if name not in kept}
    if loop.strategy == "deepspeed" and setting.shard != "none":
        layout |= {"strategy": "deepspeed", "zero_stage": ZERO[setting.shard]}
        layout["reshard_after_forward"] = "default"
    return layout


def _resharding(setting: Setting) -> str:
    """Return whether gathered weights are kept until the backward pass. By default a pipeline keeps
    them, and other layouts do not.
    """
    if setting.shard == "gradients":
        return "default" if setting.pipeline > 1 else "never"
    return "always" if setting.shard == "full" and setting.pipeline > 1 else "default"


def refusing(recipe: Recipe) -> Callable[[Setting], str | None]:
    """Return a function that says why our loop, or the recipe's workload, cannot use a layout."""
    loop, spec, settings = recipe.train.loop, recipe.workload_spec, recipe.workload_config
    assert loop is not None  # noqa: S101
    current = loop.model_dump()

    def refuse(setting: Setting) -> str | None:
        if loop.precision != "auto" and setting.precision != precision_of(loop):
            return (
                f"a {setting.gpu} has no {loop.precision}: set train.loop.precision to float16, or "
                "take other machines"
            )
        try:
            changed = TrainConfig.model_validate({**current, **fields(setting, loop)})
            changed.micro_batches(setting.gpus)
        except ValidationError as error:
            return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        except ValueError as error:
            return str(error)
        return spec.refuse_split(settings, setting.tensor, changed.stages) or spec.refuse_layout(
            settings, changed
        )

    return refuse


def changes(recipe: Recipe, one: Candidate) -> dict[str, Any]:
    """Return the fields of section ``train`` that the layout changes."""
    train = recipe.train
    assert train.loop is not None  # noqa: S101
    loop = _changed(train.loop, fields(one.setting, train.loop))
    machines = {"instance_type": one.offer.name, "instance_count": one.nodes}
    rest = tuple(name for name in train.fallback_instance_types if name != one.offer.name)
    changed = _changed(
        train, {**machines, "processes_per_node": 0, "fallback_instance_types": rest}
    )
    if "fallback_instance_types" in changed:
        changed["fallback_instance_types"] = list(rest)  # a list, as in YAML
    return changed | ({"loop": loop} if loop else {})


def _changed(now: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if getattr(now, name) != value}


def write(
    place: Path,
    path: Path,
    overrides: Sequence[str],
    changed: Mapping[str, Any],
    said: Sequence[str],
    environment: str | None = None,
) -> None:
    """Write the recipe that extends ``path`` by ``overrides`` and the ``changed`` train section, in
    its environment if one is given.

    Args:
        said: comment lines for the top of the file.

    Raises:
        RecipeError: the result is not a valid recipe; nothing is written.
    """
    tree: dict[str, Any] = {FIELD: os.path.relpath(path.resolve(), place.resolve().parent)}
    for one in overrides:
        override(tree, one)
    for name, value in changed.items():
        section = tree.setdefault("train", {})
        section[name] = {**section.get(name, {}), **value} if name == "loop" else value
    _check(path, overrides, changed, environment)
    comment = "".join(f"# {line}\n" for line in said)
    text = yaml.safe_dump(placed(tree, environment), sort_keys=False, allow_unicode=True, width=100)
    atomic_file.write(place, comment + text)


def _check(
    path: Path,
    overrides: Sequence[str],
    changed: Mapping[str, Any],
    environment: str | None,
) -> None:
    """Read the recipe with all the changes, exactly as the new file will be read."""
    flat = {name: value for name, value in changed.items() if name != "loop"}
    flat |= {f"loop.{name}": value for name, value in changed.get("loop", {}).items()}
    given = [*overrides, *(f"train.{name}={value}" for name, value in flat.items())]
    load(path, given, environment)
