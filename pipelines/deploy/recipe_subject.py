"""The subject of a recipe's roles: its pipeline, and the endpoint that serves its model."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pipelines.deploy.serving_roles  # noqa: F401 - it and pipeline_roles register roles
from pipelines.compile.compilation import CompiledPipeline
from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load
from pipelines.serving.endpoint_requests import (
    CAPTURE_FOLDER,
    Release,
    alarms,
    configuration,
    deployment,
    model,
)
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.step_requests import job_roles


def from_recipe(path: Path, overrides: Sequence[str], environment: str | None = None) -> Subject:
    """Return the subject of a recipe's roles; compiles the recipe, so it imports the SDK, which
    takes a while.
    """
    from pipelines.definition import from_recipe as compile_recipe

    recipe = load(path, overrides, environment)
    return subject(compile_recipe(path, overrides, environment), recipe)


def subject(definition: CompiledPipeline, recipe: Recipe) -> Subject:
    """Return the subject of a compiled pipeline's roles, with the endpoint of its recipe."""
    root = f"s3://{definition.assets[0].bucket}/{recipe.aws.prefix}/{definition.name}"
    pipeline_subject = Subject(
        name=definition.name,
        region=definition.region,
        role=definition.role,
        document=json.loads(definition.body),
        root=root,
        kms_key=definition.kms_key,
        read_keys=recipe.aws.input_keys,
        tags=definition.tags,
    )
    if recipe.deploy is None:
        return pipeline_subject
    group = recipe.register_.model_package_group.rpartition("/")[2]
    package = pipeline_subject.arn("sagemaker", f"model-package/{group}/*")
    new = Release(recipe, package, job_roles(pipeline_subject)[0], f"{root}/{CAPTURE_FOLDER}")
    return replace(
        pipeline_subject,
        extra_steps=tuple(_list_deployment_requests(pipeline_subject, new)),
        application=new,
    )


def _list_deployment_requests(subject: Subject, new: Release) -> Iterator[dict[str, Any]]:
    """Iterate over the requests of a deployment that the jobs' role does the work of."""
    steps = [step for step in subject.values.steps if step.type == "RegisterModel"]
    containers = [c for s in steps for c in s.arguments["InferenceSpecification"]["Containers"]]
    if new.recipe.promotion:
        copies = {"S3DataSource": {"S3Uri": f"{subject.root}/promoted/"}}
        containers += [
            container | {"ModelDataUrl": None, "ModelDataSource": copies}
            for container in containers
        ]
    for container in containers:
        model_request = model(new) | {"PrimaryContainer": container}
        yield {"Name": "deploy", "Type": "Model", "Arguments": model_request}
    shift = deployment(new.deploy, [alarm["AlarmName"] for alarm in alarms(new)])
    model_request = configuration(new) | {"ExecutionRoleArn": new.role, "DeploymentConfig": shift}
    yield {"Name": "deploy", "Type": "EndpointConfig", "Arguments": model_request}
