"""Print the JSON that would be uploaded: the DAG, compiled with no AWS in reach.

python -m pipelines.definition --recipe recipes/laptop.yaml [--set train.loop.max_steps=100]
"""

# isort: off
import pipelines.compiling.sdk  # prepares the SDK: must come first

# isort: on

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError
from sagemaker.core.workflow.parameters import (
    Parameter,
    ParameterFloat,
    ParameterInteger,
    ParameterString,
)
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep

from conditions.champion import UNRESOLVED
from conditions.step import verdict_condition
from pipelines.approval.champion import NO_CHAMPION
from pipelines.approval.ledger import PARAMETER as LOOK
from pipelines.cli import RecipeOption, SetOption
from pipelines.compiling.additions import completed
from pipelines.compiling.assets import step_code
from pipelines.compiling.commit import changes_sha256, current_commit
from pipelines.compiling.compiled import CompiledPipeline
from pipelines.compiling.images import (
    evaluation_image,
    inference_image,
    processing_image,
    training_image,
)
from pipelines.compiling.policies import cache_config, retry_policies
from pipelines.compiling.project import Project, of_evaluation, of_training, parts_of
from pipelines.compiling.provenance import NOWHERE, Origin, blank_uri, with_provenance
from pipelines.compiling.session import CompileSession
from pipelines.compiling.starting import base_of, start_of, started
from pipelines.recipe.account import Account, resolve
from pipelines.recipe.config import Recipe
from pipelines.recipe.reading import load, sha256
from steps.config import ProcessingCompute
from steps.context import StepContext
from steps.evaluate.step import evaluate_step
from steps.evaluate_script.config import PACKAGES as SCRIPTS_JOB
from steps.evaluate_script.step import evaluate_script_step
from steps.gate.config import threshold_parameter
from steps.gate.step import gate_step
from steps.processing import output_uri, split_argument
from steps.register.card import Data
from steps.register.step import register_step
from steps.shard.step import shard_step
from steps.train.program import loop_program, script_program
from steps.train.step import train_step
from training.identity import Parts, parts
from training.mixture import told
from trainyard.common.errors import RecipeError
from trainyard.machines import MACHINES
from trainyard.terminal import run

pipelines.compiling.sdk.imported()

CHECKOUT = Path(__file__).resolve().parent.parent


def build(
    recipe: Recipe,
    account: Account,
    *,
    commit: str,
    source: Path | None,
    home: Path = Path(),
    origin: Origin = NOWHERE,
) -> CompiledPipeline:
    """Compile ``recipe`` for ``account``: a pure function of its arguments and the checkout.

    Args:
        commit: what the provenance of the models says about the code.
        source: folder with the user's own workload package, or None.
        home: the recipe's folder, to which a script's path is relative.
        origin: what it says about the recipe's text.

    Raises:
        DefinitionError: the SDK refuses a combination, or a file of the checkout is missing.
    """
    prefix = f"{recipe.aws.prefix}/{recipe.pipeline.name}"
    session = CompileSession(account.region, account.bucket, prefix)
    no_champion = session.add(NO_CHAMPION)
    parameters = _parameters(recipe, no_champion)
    project, evaluation = of_training(recipe, home), of_evaluation(recipe, home)
    if project and evaluation:
        shards = recipe.data is not None
        project = completed(project, "train", CHECKOUT, shards, recipe.train.launcher)
        evaluation = completed(evaluation, "evaluate", CHECKOUT, shards)
    context = StepContext(
        session=session,
        parameters=parameters,
        role=account.job_role,
        root_uri=f"s3://{account.bucket}/{prefix}",
        kms_key=recipe.aws.kms_key,
        volume_key=lambda instance_type: _volume_key(recipe, instance_type),
        subnets=recipe.aws.vpc.subnets if recipe.aws.vpc else (),
        security_groups=recipe.aws.vpc.security_groups if recipe.aws.vpc else (),
        network_isolation=recipe.aws.network_isolation,
        encrypt_traffic=recipe.aws.encrypt_traffic,
        tags=recipe.aws.tags,
        code=_code(session, source, recipe, project),
        cache=cache_config(recipe),
        retries=retry_policies(recipe),
    )
    image = training_image(recipe, account.region)
    training = parts_of(recipe, project, image) if project else train_parts(recipe, source)
    pipeline = Pipeline(
        name=recipe.pipeline.name,
        parameters=[value for value in parameters.values() if isinstance(value, Parameter)],
        steps=_dag(recipe, account, context, image, training, project, evaluation),
        sagemaker_session=session,
    )
    compiled = json.dumps(json.loads(pipeline.definition()), indent=1)
    code = [asset for _, asset in sorted(session.assets.items())]
    body, record = with_provenance(
        compiled, recipe, account, commit, origin, CHECKOUT, code, prefix, training
    )
    return CompiledPipeline(
        name=recipe.pipeline.name,
        description=recipe.pipeline.description,
        region=account.region,
        role=account.role,
        body=body,
        assets=(*code, record),
        max_parallel_steps=recipe.pipeline.max_parallel_steps,
        tags=recipe.aws.tags,
        kms_key=recipe.aws.kms_key,
        budget=recipe.budget,
        fallback_instance_types=recipe.train.fallback_instance_types,
    )


def _dag(
    recipe: Recipe,
    account: Account,
    context: StepContext,
    image: str,
    training: Parts,
    project: Project | None,
    evaluation: Project | None,
) -> list:
    """Shard → Train → Evaluate → Gate → Verdict → Register | Rejected; no Shard without data.

    ``image``: of the train step.
    """

    def processing(compute: ProcessingCompute) -> str:
        return processing_image(recipe, account.region, compute.instance_type)

    shard = None
    if recipe.data:
        shard = shard_step(
            context,
            recipe.shard,
            image=processing(recipe.shard),
            workload_arguments=["--workload", recipe.workload.name]
            + ["--workload_config", *split_argument(_packed_with(recipe))],
            tokenizer_uri=recipe.workload.tokenizer,
            mixed=recipe.data.prefixes,
            summarised=evaluation is None and recipe.samples_spec.summarised,
        )
    if project:
        program = script_program(context, recipe.train, project, shard, training)
    else:
        program = loop_program(context, recipe.train, shard, _workload(recipe))
    train = train_step(
        context, recipe.train, program, image=image, shard=shard, checkpoint_key=training.name
    )
    evaluate = _evaluate(recipe, account, context, shard, train, evaluation)
    workload = recipe.workload_spec
    gate = gate_step(
        context,
        recipe.gate,
        image=processing(recipe.gate),
        evaluate=evaluate,
        provenance=blank_uri(context.root_uri),
        primary_metric=workload.primary_metric,
        directions=workload.metrics,
    )
    register = register_step(
        context,
        recipe.register_,
        image=inference_image(recipe, account.region),
        train=train,
        evaluate=evaluate,
        gate=gate,
        data=_data(recipe, shard),
        entry=bool(recipe.train.loop or recipe.inference.script),
        compressed=recipe.train.model_compression == "gzip",
        metrics=workload.metrics,
        about={"pipeline": recipe.pipeline.name, "workload": recipe.kind} | base_of(recipe),
    )
    visible = recipe.gate.kinds if recipe.gate.visible_checks else ()
    steps = [train, evaluate, gate, verdict_condition(gate, register, visible)]
    return [shard, *steps] if shard else steps


def _evaluate(
    recipe: Recipe,
    account: Account,
    context: StepContext,
    shard: ProcessingStep | None,
    train: TrainingStep,
    script: Project | None,
) -> ProcessingStep:
    """By the workload that was trained, or by a script of one's own."""
    if script is None:
        assert shard is not None  # noqa: S101 (``Recipe`` has looked)
        return evaluate_step(
            context,
            recipe.evaluate.model_copy(update={"slices": recipe.slices}),
            image=processing_image(recipe, account.region, recipe.evaluate.instance_type),
            shard=shard,
            train=train,
            summarised=recipe.workload_spec.summarised,
            near_duplicates="near_duplicates" in recipe.gate.needs,
            base=recipe.train.base,
        )
    register = recipe.register_
    bounded = {"examples": recipe.gate.max_leaked_examples, "groups": recipe.gate.max_leaked_groups}
    return evaluate_script_step(
        context,
        recipe.evaluate,
        image=evaluation_image(recipe, account.region),
        shard=shard,
        train=train,
        folder=context.session.add(dict(script.files)),
        entry=script.script,
        requirements=script.requirements,
        leaks=[what for what, most in bounded.items() if most is not None],
        request=[script.request, register.content_types[0], register.response_types[0]]
        if script.request
        else [],
    )


def _data(recipe: Recipe, shard: ProcessingStep | None) -> Data:
    """Where the model card says that the data lie: the shards, and channels of a script."""
    splits = {n: [output_uri(shard, n)] if shard else [] for n in ("train", "test")}
    return Data(
        training=[*splits["train"], *recipe.train.channels.values()],
        test=[*splits["test"], *recipe.evaluate.channels.values()],
    )


def _workload(recipe: Recipe) -> dict[str, str]:
    """The hyperparameters by which the loop knows what it trains."""
    settings = recipe.workload_config.model_dump_json()
    mixture = recipe.data.mixture if recipe.data else None
    weights = {"mixture": mixture.model_dump_json()} if mixture else {}
    return {"workload": recipe.workload.name, "workload_config": settings, **weights}


def _packed_with(recipe: Recipe) -> str:
    """The settings that samples depend on: a wider model is trained on the same shards.

    Raises:
        RecipeError: the workload's SPEC leaves out a setting that these cannot do without.
    """
    names, config = recipe.samples_spec.packed_with, recipe.workload_config
    chosen = config.model_dump_json(include=None if names is None else set(names))
    try:
        type(config).model_validate_json(chosen)
    except ValidationError as error:
        raise RecipeError(
            f"workload {recipe.workload.name}: SPEC.packed_with {names} makes no configuration: "
            f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}; name that setting, too"
        ) from None
    return chosen


def _parameters(recipe: Recipe, no_champion: str) -> dict[str, Parameter | str | int | float]:
    """What people change from run to run, without an upsert; and what ``start`` finds out.

    What the recipe does not list as overridable is its value: whoever may start a run cannot
    choose with which thresholds it is judged. ``no_champion``: the URI that stands for no
    champion's model.
    """
    known: dict[str, str | int | None] = {
        "InputUri": recipe.data and recipe.data.input,
        "ShardInstanceCount": recipe.shard.instance_count,
        "TrainInstanceType": recipe.train.instance_type,
        "TrainInstanceCount": recipe.train.instance_count,
        "MaxSteps": recipe.train.loop and recipe.train.loop.max_steps,
    }
    values = {
        **{name: value for name, value in known.items() if name in recipe.parameters},
        **{threshold_parameter(name): value for name, value in recipe.gate.thresholds.items()},
    }
    told = {"ChampionArn": UNRESOLVED, "ChampionModelUri": no_champion}
    told |= {LOOK: 0} if recipe.gate.comparisons else {}
    kept = {n: value for n, value in values.items() if n not in recipe.pipeline.overridable}
    parameters = {n: _parameter(n, v) for n, v in (values | told).items() if n not in kept}
    return kept | parameters


def _parameter(name: str, value: str | int | float) -> Parameter:
    kind = {str: ParameterString, int: ParameterInteger, float: ParameterFloat}[type(value)]
    return kind(name, default_value=value)


def _code(
    session: CompileSession, source: Path | None, recipe: Recipe, project: Project | None
) -> Callable[[str], str]:
    """Step → the URI of its code; a script's training gets the script's folder, nothing of ours."""
    of_workload = recipe.workload_spec.packages
    packages = {
        "shard": of_workload,
        "train": (*recipe.train.packages, *of_workload),
        "evaluate": of_workload,
        "gate": recipe.gate.packages,
        "evaluate_script": SCRIPTS_JOB,
    }

    def of(step: str) -> str:
        if step == "train" and project:
            return session.add(dict(project.files))
        return session.add(step_code(CHECKOUT, step, source, packages.get(step, ())))

    return of


def _volume_key(recipe: Recipe, instance_type: str) -> str | None:
    """Disks of the instance are encrypted by its hardware; a key for them is refused (#3677)."""
    machine = MACHINES.get(instance_type)
    return None if machine and machine.local_storage_gb else recipe.aws.kms_key


def train_parts(recipe: Recipe, source: Path | None) -> Parts:
    """What the weights depend on as far as it is known before the run: names their checkpoints.

    The training job adds the data and torch's version, and names its training by all of it.
    """
    code = step_code(CHECKOUT, "train", source)
    assert recipe.train.loop is not None  # noqa: S101 (``TrainStepConfig`` has looked)
    known = parts(recipe.train.loop, recipe.workload.name, recipe.workload.config, code)
    shares = told(recipe.data.mixture if recipe.data else None)
    more = {"start": start_of(recipe), "tuning": recipe.train.tuning.part, "mixture": shares}
    return known.model_copy(update=more)


def from_recipe(path: Path, overrides: Sequence[str] = ()) -> CompiledPipeline:
    """Read, resolve and compile: what every verb that builds a definition does."""
    recipe = started(load(path, overrides))
    source = path.parent / recipe.workload.source if recipe.workload.source else None
    commit, origin = current_commit(CHECKOUT), _origin(path, overrides)
    account = resolve(recipe.aws)
    return build(recipe, account, commit=commit, source=source, home=path.parent, origin=origin)


def _origin(path: Path, overrides: Sequence[str]) -> Origin:
    inside = path.resolve().is_relative_to(CHECKOUT)
    return Origin(
        changes_sha256=changes_sha256(CHECKOUT),
        recipe_file=path.resolve().relative_to(CHECKOUT).as_posix() if inside else path.name,
        recipe_file_sha256=sha256(path),
        overrides=tuple(overrides),
    )


def main(recipe: RecipeOption, overrides: SetOption = ()) -> None:
    """Print the definition JSON that would be uploaded; needs no AWS and no credentials."""
    print(from_recipe(recipe, overrides).body)


if __name__ == "__main__":
    run(main)
