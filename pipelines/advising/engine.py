"""The layouts that our training loop has: foresight's words for them, and a recipe's.

``pipelines.foreseeing`` reads a recipe's layout as a setting; here a setting is written as the
fields of a recipe that make it.
"""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from pipelines.foreseeing import precision_of
from pipelines.recipe.config import Recipe
from training.config import TrainConfig
from training.layout import FSDP
from trainyard.foresight.layouts import Space
from trainyard.foresight.setting import Setting

ZERO = {"optimizer": 1, "gradients": 2, "full": 3}
ALONE = (1,)


def space(recipe: Recipe, precision: str) -> Space:
    """What our loop has of the layouts that could be: DeepSpeed's stages where the recipe names
    that strategy, else DDP and FSDP with every degree; each as the recipe's checks allow it."""
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
    """The fields of ``train.loop`` that lay the training out as ``setting`` says; those that the
    recipe's other layout needed go back to their defaults."""
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
    """Whether weights that were gathered are kept until the backward pass: in a pipeline they are
    unless it is said, else the other way round."""
    if setting.shard == "gradients":
        return "default" if setting.pipeline > 1 else "never"
    return "always" if setting.shard == "full" and setting.pipeline > 1 else "default"


def refusing(recipe: Recipe) -> Callable[[Setting], str | None]:
    """What says why our loop, or the recipe's workload, cannot be laid out so."""
    loop, spec, settings = recipe.train.loop, recipe.workload_spec, recipe.workload_config
    assert loop is not None  # noqa: S101
    told = loop.model_dump()

    def refuse(setting: Setting) -> str | None:
        if setting.precision != precision_of(loop):
            return (
                f"a {setting.gpu} has no {loop.precision}: set train.loop.precision to float16, or "
                "take other machines"
            )
        try:
            changed = TrainConfig.model_validate({**told, **fields(setting, loop)})
            changed.micro_batches(setting.gpus)
        except ValidationError as error:
            return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        except ValueError as error:
            return str(error)
        return spec.refuse_split(settings, setting.tensor, changed.stages) or spec.refuse_layout(
            settings, changed
        )

    return refuse
