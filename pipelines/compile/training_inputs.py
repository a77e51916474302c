"""Find the training's inputs that are known before it, such as the model that it starts from.

Which file of a registered model it starts from is looked up once, at compile time: the definition
names the file and its hash. So an execution starts from what was planned, even if the model package
has changed since.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipelines.compile.compilation import collect_step_code
from pipelines.recipe.config import Recipe
from pipelines.registry.champion import locate_model
from steps.register.config import ENDPOINT
from training.identity import Parts, build_parts
from training.input_shares import list_identity_shares as shares_of
from training.weights.finetuning.hugging_face_folder import CONFIG, INDEX, select_files
from training.weights.starting_weights import BASE, StartFrom, parse_start
from training.workloads import load_spec
from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import DataError, RecipeError, TrainingError
from trainyard.language.definition_document import iter_steps


def resolve_starting_model(recipe: Recipe) -> Recipe:
    """Return the recipe with the file of ``train.start_from.model_package`` filled in.

    AWS is called only if that field is set, and the file is not.

    Raises:
        ServiceError: the package or its model does not exist, or AWS refused.
    """
    start = recipe.train.start_from
    if start is None or start.model_package is None or start.model is not None:
        return recipe
    region = recipe.aws.region or start.model_package.split(":")[3]
    fix = "name another in train.start_from.model_package, or its file in train.start_from.model"
    uri, sha256 = locate_model(
        create_client("sagemaker", region),
        start.model_package,
        "train.start_from.model_package",
        fix,
    )
    resolved_start = start.model_copy(
        update={"model": uri, "model_sha256": start.model_sha256 or sha256}
    )
    train = recipe.train.model_copy(update={"start_from": resolved_start})
    return recipe.model_copy(update={"train": train})


def find_starting_model(recipe: Recipe) -> dict[str, Any] | None:
    """Return the recipe's setting for the model that the training starts from; None if its weights
    are newly initialised.
    """
    start = recipe.train.start_from
    return None if start is None else start.model_dump(mode="json", exclude_defaults=True)


def build_registry_metadata(recipe: Recipe) -> dict[str, str]:
    """Return the recipe's metadata for the registry: pipeline, workload, the model that the
    training starts from, and the endpoint.
    """
    facts = {"pipeline": recipe.pipeline.name, "workload": recipe.kind}
    start = recipe.train.start_from
    if start is not None and recipe.train.base is not None:
        facts[BASE] = start.model_package or recipe.train.base
    return facts | ({ENDPOINT: recipe.deploy.endpoint} if recipe.deploy else {})


def build_loop_parts(recipe: Recipe, source: Path | None, checkout: Path) -> Parts:
    """Return everything that the weights of our loop's training depend on and that is known before
    the execution.

    The training job adds the data and torch's version, and names its checkpoints by all of it.
    """
    code = collect_step_code(checkout, "train", source)
    assert recipe.train.loop is not None  # noqa: S101 (``TrainStepConfig`` has checked it)
    training_parts = build_parts(
        recipe.train.loop, recipe.workload.name, recipe.workload.config, code
    )
    shares = shares_of(recipe.data.mixture if recipe.data else None)
    more = {
        "start": find_starting_model(recipe),
        "tuning": recipe.train.tuning.part,
        "mixture": shares,
    }
    return training_parts.model_copy(update=more)


def build_hyperparameters(recipe: Recipe) -> dict[str, str]:
    """Return the hyperparameters that pass workload, its settings and data weights to the loop."""
    settings = recipe.workload_config.model_dump_json()
    mixture = recipe.data.mixture if recipe.data else None
    weights = {"mixture": mixture.model_dump_json()} if mixture else {}
    return {"workload": recipe.workload.name, "workload_config": settings, **weights}


def render_packing_settings(recipe: Recipe) -> str:
    """Return, as JSON, the workload's settings that the packed samples depend on.

    Other settings may change while the shards stay valid: a wider model is trained on the same
    shards.

    Raises:
        RecipeError: the workload's SPEC leaves out a setting that the others need.
    """
    names, config = recipe.samples_spec.packed_with, recipe.workload_config
    settings_json = config.model_dump_json(include=None if names is None else set(names))
    try:
        type(config).model_validate_json(settings_json)
    except ValidationError as error:
        raise RecipeError(
            f"workload {recipe.workload.name}: SPEC.packed_with {names} is not enough: "
            f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}; add that setting"
        ) from None
    return settings_json


def iter_starting_models(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (step name, description of the model) for each training that starts from a model."""
    for step in iter_steps(document["Steps"]):
        start_text = step.arguments.get("HyperParameters", {}).get("start_from")
        if isinstance(start_text, str) and (start := _parse_setting(start_text)):
            yield step.name, start.describe_start()


def refuse_other_base_model(document: Mapping[str, Any], region: str) -> None:
    """Check that the training's settings match the config.json of its Hugging Face folder in S3.

    Raises:
        RecipeError: the folder contains no model, pickles, or another model than the recipe's.
        ServiceError: AWS refused.
    """
    for step in iter_steps(document["Steps"]):
        hyperparameters = step.arguments.get("HyperParameters", {})
        text = hyperparameters.get("start_from")
        start = _parse_setting(text) if isinstance(text, str) else None
        if start and start.hugging_face:
            try:
                _check_base_model(create_client("s3", region), str(start.uri), hyperparameters)
            except (DataError, TrainingError, ValueError) as error:
                raise RecipeError(
                    f"train.start_from.hugging_face {start.uri}: {error}. Nothing was changed"
                ) from None


def _check_base_model(s3: Any, uri: str, hyperparameters: Mapping[str, Any]) -> None:
    """Raise DataError if the model at ``uri`` does not have the configuration of the workload."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    with service_errors(f"looking at {uri}"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        names = [item["Key"][len(prefix) :] for page in pages for item in page.get("Contents", ())]

        def read(name: str) -> Any:
            answer = s3.get_object(Bucket=bucket, Key=f"{prefix}{name}")
            return json.loads(answer["Body"].read())

        if CONFIG not in names:
            raise DataError(f"has no {CONFIG}; it contains {', '.join(names[:5]) or 'nothing'}")
        select_files(read(INDEX) if INDEX in names else None, names)
        workload_spec = load_spec(hyperparameters["workload"])
        if workload_spec.base_differences is None:
            raise DataError(
                f"workload {hyperparameters['workload']} cannot start from a model of that kind"
            )
        config = workload_spec.config.model_validate_json(hyperparameters["workload_config"])
        if differs := workload_spec.base_differences(config, read(CONFIG)):
            raise DataError("; ".join(differs))


def _parse_setting(text: str) -> StartFrom | None:
    """Return the parsed setting; None if the job is not Trainyard's, because a plan compares any
    pipeline.
    """
    try:
        return parse_start(text)
    except TrainingError:
        return None
