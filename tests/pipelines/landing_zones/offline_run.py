"""An offline run of a zone: on the emulator, deployed as the zone does, to a registered package."""

import json
import math
from typing import Any

from botocore.exceptions import ClientError

from pipelines.corpora.stdlib import pack_sources
from pipelines.delivery.pipeline_objects import ensure_bucket, upload_changed_files
from pipelines.recipe.config import Recipe
from tests.pipelines.landing_zones.verbs import (
    call_verb,
    describe_failure,
    recipe_of,
    render_infra,
    words,
)
from tests.pipelines.landing_zones.zones import Zone
from trainyard.aws_clients import create_client
from trainyard.common.errors import TrainyardError

ROWS = [(f"row-{n}", (n * 37 % 101 - 50) / 20, n * 61 % 97 / 97) for n in range(400)]


def run(zone: Zone) -> str:
    """Take the zone's first environment to a registered package; return what was in the way."""
    try:
        return _ran(zone)
    except (ClientError, TrainyardError) as error:
        return str(error)


def _ran(zone: Zone) -> str:
    environment = next(iter(zone.environments), None)
    recipe, chosen = recipe_of(zone, environment), words(zone, environment, offline=True)
    _put_data(recipe)
    if problem := describe_failure(call_verb("package", *chosen)):
        return problem
    if problem := _deploy_zone(zone, chosen, str(recipe.aws.region)):
        return problem
    verb = ["upsert", *chosen, "--start"] if zone.deploy == "upsert" else ["start", *chosen]
    return describe_failure(call_verb(*verb, "--wait")) or _missing(recipe)


def _put_data(recipe: Recipe) -> None:
    """Put small data wherever the recipe has an input or a channel of data."""
    lines = (f"{n},{x},{int(luck < 1 / (1 + math.exp(-1.5 * x)))}\n" for n, x, luck in ROWS)
    table = {"test.csv": "".join(lines).encode()}
    data = recipe.data
    uris = ([data.input] if data.input else [one.uri for one in data.inputs]) if data else []
    places = {uri: _texts(uri) for uri in uris}
    places |= dict.fromkeys(recipe.train.channels.values(), table)
    places |= dict.fromkeys(recipe.evaluate.channels.values(), table)
    region = str(recipe.aws.region)
    s3 = create_client("s3", region)
    for uri, files in places.items():
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        ensure_bucket(s3, bucket, region)
        upload_changed_files(s3, bucket, prefix.rstrip("/"), files)


def _texts(uri: str) -> dict[str, bytes]:
    """Return files of text, other ones for each input: of equal records one is kept."""
    text = "def f{n}(x):\n    return x + {n}, '{uri}'\n"
    return pack_sources((f"{uri}-{n}", text.format(n=n, uri=uri) * 20) for n in range(30))


def _deploy_zone(zone: Zone, chosen: list[str], region: str) -> str:
    """Deploy roles, and the pipeline unless an upsert does; return what was in the way."""
    if zone.deploy == "upsert":
        return describe_failure(call_verb("permissions", *chosen, "--deploy"))
    done = render_infra(zone, chosen, zone.deploy)
    if problem := describe_failure(done):
        return problem
    template = done.stdout
    if zone.deploy == "terraform":
        [stack] = json.loads(template)["resource"]["aws_cloudformation_stack"].values()
        template = stack["template_body"].replace("$${", "${").replace("%%{", "%{")
    _stack(zone, template, region)
    return ""


def _stack(zone: Zone, template: str, region: str) -> None:
    given = {"PermissionsBoundary": zone.boundary} if zone.boundary else {}
    if zone.boundary:
        name = zone.boundary.rpartition("/")[2]
        path = zone.boundary.partition(":policy")[2].removesuffix(name)
        allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        create_client("iam").create_policy(PolicyName=name, Path=path, PolicyDocument=document)
    create_client("cloudformation", region).create_stack(
        StackName="zone",
        TemplateBody=template,
        Capabilities=["CAPABILITY_NAMED_IAM"],
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()],
    )


def _missing(recipe: Recipe) -> str:
    """Say what the run lacks: a package, or one of the recipe's tags on pipeline, jobs, group."""
    sagemaker = create_client("sagemaker", recipe.aws.region)
    group = recipe.register_.model_package_group.rpartition("/")[2]
    found = sagemaker.list_model_packages(ModelPackageGroupName=group)["ModelPackageSummaryList"]
    if len(found) != 1:
        return f"{len(found)} packages in {group}"
    described = sagemaker.describe_model_package_group(ModelPackageGroupName=group)
    pipeline = sagemaker.describe_pipeline(PipelineName=recipe.pipeline.name)
    arns = [pipeline["PipelineArn"]]
    if not recipe.register_.group_region:  # else it was there before
        arns.append(described["ModelPackageGroupArn"])
    arns += [j["TrainingJobArn"] for j in sagemaker.list_training_jobs()["TrainingJobSummaries"]]
    jobs = sagemaker.list_processing_jobs()["ProcessingJobSummaries"]
    arns += [job["ProcessingJobArn"] for job in jobs]
    wanted = set(recipe.aws.tags.items())
    bare = [arn for arn in arns if wanted - _tags_of(sagemaker, arn)]
    return "".join(f"{arn} lacks a tag; " for arn in bare)


def _tags_of(sagemaker: Any, arn: str) -> set[tuple[str, str]]:
    return {(t["Key"], t["Value"]) for t in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
