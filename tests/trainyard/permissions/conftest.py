"""The recipes' definitions, compiled once for the module's tests."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pipelines.infrastructure.serving_roles import build_recipe_subject
from trainyard.permissions.pipeline_subject import Subject

RECIPES = ("flights", "laptop", "mesh", "prod")
CORNERS = (
    "train.input_mode=FSxLustre",
    "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: /abcdefgh/data}",
    "aws.kms_key=alias/ours",
    "aws.input_keys=[1234abcd-12ab-34cd-56ef-1234567890ab]",
    "train.loop.mlflow_tracking_uri="
    "arn:aws:sagemaker:us-east-1:111122223333:mlflow-tracking-server/ours",
    "deploy.endpoint=live",
    "deploy.capture_share=1",
    "deploy.compare={quality: bits_per_byte}",
    "monitor.prediction=bits_per_byte",
    "monitor.baseline=s3://example-corp-baseline/2026",
    "monitor.truths=s3://example-corp-truths/live",
    "monitor.topic=arn:aws:sns:us-east-1:111122223333:drift",
    "packages.codeartifact=arn:aws:codeartifact:us-east-1:111122223333:repository/corp/pypi",
)
"""prod.yaml with what none of the recipes has: the name "corners"."""


MOUNTS = (
    "aws.vpc={subnets: [subnet-0123456789], security_groups: [sg-0123456789]}",
    "train.input_mode=FSxLustre",
    "train.fsx={file_system_id: fs-9876543210, directory_path: /fsx/mirror}",
    "train.file_systems={more: {file_system_id: fs-0123456789, type: EFS, directory_path: /}}",
)
"""A script's recipe on file systems of both kinds: the name "mounts"."""


@pytest.fixture(scope="session")
def subject() -> Callable[[str], Subject]:
    """Name of a recipe, "corners" or "mounts" → what the permissions are derived from."""

    @cache
    def build_subject(name: str) -> Subject:
        if name == "mounts":
            return build_recipe_subject(Path("recipes/flights_xgboost.yaml"), MOUNTS)
        if name == "corners":
            return build_recipe_subject(Path("recipes/prod.yaml"), CORNERS)
        return build_recipe_subject(Path(f"recipes/{name}.yaml"), ())

    return build_subject
