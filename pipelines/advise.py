r"""Advise machines and a layout for a recipe's training, and write the recipe that adopts them.

python -m pipelines.advise --recipe recipes/prod.yaml --instances ml.p4d.24xlarge,ml.p5.48xlarge \
    --max-nodes 16 --deadline 10d [--apply recipes/advised.yaml]
python -m pipelines.advise --calibrate EXECUTION|all     # learn from the times of past trainings
python -m pipelines.advise --recipe R --trace            # keep the shapes of the workload's model

The global batch, the number of steps and all else that affects the weights stay unchanged. The
command starts nothing, and only --calibrate sends requests to AWS. Exit status 0: success; 3: no
layout fits; 1: an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from pipelines.advice.recipe_advice import (
    RecipeModel,
    build_search_space,
    derive_model,
    find_train_changes,
    store_traced_shapes,
    write_advised_recipe,
)
from pipelines.advice.training_setting import derive_described_training
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeChoice, require_recipe_for
from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load_recipe
from trainyard.commands import advise
from trainyard.commands.advise import REGION, explain_first_problem, needs_shape, needs_tokens
from trainyard.common.errors import ForesightError, RecipeError
from trainyard.foresight.advice import Advice, Candidate
from trainyard.foresight.advice_display import format_layout, format_peak, format_time_and_cost
from trainyard.foresight.question import choose_offers, filter_by_precision
from trainyard.foresight.setting import Setting
from trainyard.terminal import Need, check_writable, console, extend_verb, has_value, run

TYPE_FIELD = "train.instance_type"
MOST_NODES = 16


TRAINING_OPTIONS = ("model", "layers", "hidden", "shapes", "tokens", "sequence", "global_batch",
                    "region", "rows", "fine_tune")  # fmt: skip
"""Options that describe the training; a recipe already contains all of these values."""


def read_recipe_training(
    values: Mapping[str, Any],
    recipe: RecipeChoice = None,
    given: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Override one field of the recipe; without --recipe, as in trainyard advise.",
        ),
    ] = NOT_GIVEN,
    environment: EnvOption = None,
    data: Annotated[
        Path | None, typer.Option(help="Shards, for a workload that needs data to be traced.")
    ] = None,
    apply: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a recipe with the first layout.")
    ] = None,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Only trace the workload's model, and store its shapes for plan and validate.",
        ),
    ] = False,
) -> Mapping[str, Any]:
    """Return the recipe's training as keyword arguments for the advice.

    Without a recipe, return only what a calibration needs. With ``trace``, store the shapes of the
    recipe's model, and exit.
    """
    if recipe is None:
        learns = values["learn_from"] is not None and values["setting"] is None
        return {"setting_of": _derive_job_setting} if learns else {}
    if conflicts := [name for name in TRAINING_OPTIONS if has_value(values[name])]:
        option = conflicts[0].replace("_", "-")
        raise RecipeError(f"--{option}: follows from {recipe}; leave it out, or --recipe")
    if apply is not None:
        check_writable(apply)
    recipe_config = load_recipe(recipe, given, environment)
    if trace:
        shapes_path = store_traced_shapes(recipe_config, recipe, data)
        line = f"written: {shapes_path}; plan, validate, budget and watch read it; commit it"
        console.print(line, markup=False)
        raise typer.Exit
    training = derive_model(recipe_config, recipe, data)

    def conclude(advice: Advice) -> None:
        """Print remarks on the advice; with ``apply``, also write the recipe that adopts it."""
        is_text = not values["as_json"]
        if is_text:
            for line in iter_remarks(advice, recipe_config, training.assumptions):
                console.print(line, highlight=False, markup=False)
        if advice.ranking and apply is not None:
            _write_adopted_recipe(
                advice.ranking[0],
                apply,
                recipe_config,
                recipe,
                given,
                environment,
                is_announced=is_text,
            )

    return {
        "subject": lambda: _build_question_fields(recipe_config, training, recipe, values),
        "conclude": conclude,
    }


def _build_question_fields(
    recipe: Recipe, training: RecipeModel, path: Path, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of foresight's ``Question`` about machines for the recipe's training."""
    instances = values["instances"]
    train = recipe.train
    recipe_types = ",".join((train.instance_type, *train.fallback_instance_types))
    names = (instances, "--instances") if instances else (recipe_types, TYPE_FIELD)
    region = recipe.aws.region or REGION
    offers, elsewhere = choose_offers(names[0], region, names[1])
    offers = filter_by_precision(offers, (training.fields["precision"],))
    loop = recipe.train.loop
    assert loop is not None  # noqa: S101 (``derive_model`` has checked)
    try:
        model = Setting(gpu=offers[0].machine.gpu, **training.fields)
    except ValidationError as error:
        raise RecipeError(f"{path}: {explain_first_problem(error, ())}") from None
    return {
        "model": model,
        "tokens": float(loop.max_steps) * loop.global_batch * model.sequence,
        "global_batch": loop.global_batch,
        "offers": offers,
        "elsewhere": elsewhere,
        "max_nodes": values["max_nodes"] or MOST_NODES,
        "budget": values["budget"] or recipe.budget.usd_per_run,
        "region": region,
        "how": "spot" if recipe.train.spot or values["spot"] else "on demand",
        "space": build_search_space(recipe, model.precision),
        "shapes": training.shapes,
    }


def _derive_job_setting(job: Mapping[str, Any]) -> Setting:
    """Return the setting of a training job, for a calibration.

    Raises:
        ForesightError: the model of the job is not known, or a calibration could not predict it
            again.
    """
    training = derive_described_training(job)
    if training.shapes is not None:
        raise ForesightError("its model was traced, and a calibration keeps no shapes")
    return training.setting


def iter_remarks(advice: Advice, recipe: Recipe, assumptions: Sequence[str]) -> Iterator[str]:
    """Yield remarks for the user: layouts that our loop refuses, the recipe's batch and time limit,
    and the assumptions.
    """
    loop = recipe.train.loop
    assert loop is not None  # noqa: S101
    if advice.count.refusal_count:
        yield (
            f"{advice.count.refusal_count:,} layouts are refused by our loop; one reason: "
            f"{advice.count.refusal}"
        )
    if advice.ranking:
        first = advice.ranking[0]
        setting = first.setting
        yield (
            f"train.loop.global_batch {loop.global_batch} stays the same for any number of GPUs: "
            f"here data-parallel ranks ({setting.data_parallel}) × micro-batches "
            f"({setting.accumulation}) × their size ({setting.micro_batch}); with more GPUs, a "
            "rank has fewer micro-batches and a pipeline idles more"
        )
        minutes = first.hours.p90 * 60
        if minutes > recipe.train.max_runtime_minutes:
            yield (
                f"train.max_runtime_minutes {recipe.train.max_runtime_minutes:,} would stop it "
                f"early: p90 is {minutes:,.0f}"
            )
    yield from (f"assumed: {assumption}" for assumption in assumptions)


def _write_adopted_recipe(
    first: Candidate,
    output_path: Path,
    recipe: Recipe,
    path: Path,
    overrides: Sequence[str],
    environment: str | None,
    *,
    is_announced: bool,
) -> None:
    """Write the recipe that adopts the first candidate, and print how to plan with it."""
    train_changes = find_train_changes(recipe, first)
    comment = [
        f"By python -m pipelines.advise --recipe {path}: foreseen, not measured.",
        f"{first.nodes} × {first.offer.name}, {format_layout(first.setting)}: "
        f"{format_time_and_cost(first)}; {format_peak(first.memory)}.",
    ]
    write_advised_recipe(output_path, path, overrides, train_changes, comment, environment)
    if is_announced:
        env = f" --env {environment}" if environment else ""
        plan = f"python -m pipelines.plan --recipe {output_path}{env}"
        console.print(f"written: {output_path}; {plan}", markup=False)


def _needs_model_options(values: Mapping[str, Any]) -> bool:
    """Return whether the options must describe the training's model."""
    return values["recipe"] is None and needs_shape(values)


main = extend_verb(
    advise.main,
    read_recipe_training,
    Need(("recipe", "layers", "model", "shapes"), _needs_model_options, exclusive=False),
    Need(("hidden",), lambda values: _needs_model_options(values) and values["layers"] is not None),
    Need(("tokens",), lambda values: values["recipe"] is None and needs_tokens(values)
         and any(values[name] is not None for name in ("layers", "model", "shapes"))),
    require_recipe_for("environment", "data", "apply", "trace"),
)  # fmt: skip

if __name__ == "__main__":
    run(main)
