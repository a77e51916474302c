"""Find what costs money in an account and belongs to no champion of a recipe's pipeline."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from pipelines.deploy.removal_plan import (
    MISSING,
    URI,
    described_models,
    described_packages,
    executions_of,
    rests_on,
)
from pipelines.recipe.config import Recipe
from pipelines.registry.champion import current
from pipelines.serving.endpoint_cost import hourly
from pipelines.serving.rollout import BEFORE
from trainyard.aws_clients import client, error_code, service_errors
from trainyard.language.statuses import ENDED
from trainyard.plan.prices import Prices, load
from trainyard.plan.s3_listing import listed

DEPTH = {"runs": 2, "checkpoints": 2, "captured": 3}
"""Folder of the pipeline → number of leading parts of a key that name one item. The other folders
(code, records, monitoring) are small, and the deployed pipeline needs them."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that costs money, and belongs to no champion."""

    what: str
    why: str
    command: Sequence[str]
    """Arguments of ``aws`` that remove it."""

    size: int = 0
    """Bytes in S3."""

    objects: int = 0
    hourly: float | None = None
    """USD; None without a price. An endpoint's is a processing job's: the table has no other."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that serves a package of the recipe's group, or would return to one."""

    name: str
    serves: set[str]
    before: set[str]
    """Packages to which a roll-back returns."""

    machines: Sequence[tuple[str, int]]
    """Instance types that serve, and how many of each."""


def left_over(recipe: Recipe, region: str, place: str, since: datetime) -> list[Item]:
    """Return what is older than ``since`` and is not needed.

    ``place``: the URI below which the pipeline's objects lie, with a slash at its end.

    Raises:
        ServiceError: something cannot be read, so that it is not known what is needed.
    """
    name, group = recipe.pipeline.name, recipe.register_.model_package_group
    own = recipe.deploy.endpoint if recipe.deploy else None
    prices, recipe_text = load(region), recipe.model_dump_json()
    sagemaker, s3 = client("sagemaker", region), client("s3", region)
    with service_errors(f"reading what pipeline {name} left"):
        models = [json.loads(text) for _, text in described_models(sagemaker)]
        endpoints = list(_endpoints(sagemaker, group, models))
        champion = current(sagemaker, group, own)
        needed = {champion}.union(*(one.serves | one.before for one in endpoints))
        runs = executions_of(sagemaker, name) or []
        alive = [run for run in runs if run["PipelineExecutionStatus"] not in ENDED]
        users = [run["PipelineExecutionArn"] for run in runs
                 if run in alive or run["StartTime"] >= since]  # fmt: skip
        # A model that was made from a package needs no more than the package does.
        users += [json.dumps(model, default=str) for model in models if not _packages_of(model)]
        kept = {uri for uri in URI.findall(recipe_text) if uri.startswith(place)}
        if alive:  # their trainings may resume from any
            kept.add(f"{place}checkpoints/")
        for arn, text in described_packages(sagemaker, group):
            if arn in needed or arn in recipe_text or _stays(json.loads(text), group, since):
                users.append(text)
                if own and _in(arn, group):
                    kept.add(f"{place}captured/{own}/version-{arn.rpartition('/')[2]}/")
        for text in users:
            kept |= rests_on(sagemaker, text, name, region, place)[0]
        return [
            *_served(endpoints, own, champion, prices),
            *_folders(listed(s3, place, sys.maxsize), place, kept, since),
            *_uploads(s3, place, since),
        ]


def _stays(package: dict[str, Any], group: str, since: datetime) -> bool:
    approved = package.get("ModelApprovalStatus") == "Approved"
    young = datetime.fromisoformat(package["CreationTime"]) >= since
    return approved or young or not _in(package["ModelPackageArn"], group)


def _in(arn: str, group: str) -> bool:
    return arn.rpartition(":model-package/")[2].split("/")[0] == group.rpartition("/")[2]


def _packages_of(model: dict[str, Any]) -> set[str]:
    containers = [model.get("PrimaryContainer", {}), *model.get("Containers", ())]
    return {one["ModelPackageName"] for one in containers if "ModelPackageName" in one}


def _endpoints(sagemaker: Any, group: str, models: Sequence[dict[str, Any]]) -> Iterator[Endpoint]:
    """Iterate over the endpoints that serve, or would return to, a package of the group."""
    made_from = {model["ModelName"]: _packages_of(model) for model in models}
    for page in sagemaker.get_paginator("list_endpoints").paginate():
        for item in page["Endpoints"]:
            if item["EndpointStatus"] == "Failed":  # without machines
                continue
            tags = sagemaker.list_tags(ResourceArn=item["EndpointArn"])["Tags"]
            now = sagemaker.describe_endpoint(EndpointName=item["EndpointName"])
            before = next((tag["Value"] for tag in tags if tag["Key"] == BEFORE), None)
            variants = _variants(sagemaker, now["EndpointConfigName"])
            earlier = _variants(sagemaker, before) if before else []
            serves, back = (
                {arn for one in each for arn in made_from.get(one.get("ModelName", ""), ())}
                for each in (variants, earlier)
            )
            if any(_in(arn, group) for arn in serves | back):
                machines = [
                    (one["InstanceType"], one.get("InitialInstanceCount", 1))
                    for one in variants
                    if "InstanceType" in one
                ]
                yield Endpoint(item["EndpointName"], serves, back, machines)


def _variants(sagemaker: Any, config: str) -> list[dict[str, Any]]:
    try:
        return sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    except ClientError as error:
        if error_code(error) not in MISSING:
            raise
        return []  # an endpoint serves on when its configuration was deleted


def _served(
    endpoints: Sequence[Endpoint], own: str | None, champion: str | None, prices: Prices
) -> Iterator[Item]:
    for one in endpoints:
        if one.name != own and champion not in one.serves:
            packages = ", ".join(sorted(arn.rpartition(":model-package/")[2] for arn in one.serves))
            yield Item(
                f"endpoint {one.name}",
                f"serves {packages or 'no package'}, not the champion",
                ("sagemaker", "delete-endpoint", "--endpoint-name", one.name),
                hourly=hourly(prices, one.machines),
            )


def _folders(
    objects: Sequence[dict[str, Any]], place: str, kept: set[str], since: datetime
) -> Iterator[Item]:
    """Iterate over the folders below ``place`` of which every object is older, and none kept."""
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    folders = defaultdict[str, list[dict[str, Any]]](list)
    for one in objects:
        parts = one["Key"].removeprefix(prefix).split("/")
        depth = DEPTH.get(parts[0])
        if depth and len(parts) > depth:
            folders[f"{place}{'/'.join(parts[:depth])}/"].append(one)
    for uri, inside in folders.items():
        newest = max(one["LastModified"] for one in inside)
        if newest >= since or any(uri.startswith(one) or one.startswith(uri) for one in kept):
            continue
        yield Item(
            uri.removeprefix(place),
            f"unused since {newest:%F}",
            ("s3", "rm", "--recursive", uri),
            size=sum(one["Size"] for one in inside),
            objects=len(inside),
        )


def _uploads(s3: Any, place: str, since: datetime) -> Iterator[Item]:
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
    for upload in (upload for page in pages for upload in page.get("Uploads", ())):
        if upload["Initiated"] >= since:
            continue
        key, number = upload["Key"], upload["UploadId"]
        parts = s3.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=number)
        sizes = [part["Size"] for page in parts for part in page.get("Parts", ())]
        yield Item(
            f"incomplete upload of {key.removeprefix(prefix)}",
            f"begun {upload['Initiated']:%F}",
            ("s3api", "abort-multipart-upload", "--bucket", bucket, "--key", key,
             "--upload-id", number),
            size=sum(sizes),
            objects=len(sizes),
        )  # fmt: skip
