"""An offline run of a zone: on the emulator, deployed as the zone does, to a registered package."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from benchmarks.landing_zones.verbs import called, recipe_of, rendered, said, words
from benchmarks.landing_zones.zones import Zone
from pipelines.corpora.stdlib import pack
from pipelines.deploy.pipeline_objects import ensure_bucket, sync
from pipelines.recipe.config import Recipe
from trainyard.aws_clients import client

TEXTS = [(f"file-{n}", f"def f{n}(x):\n    return x + {n}\n" * 20) for n in range(30)]
ROWS = [(f"row-{n}", (n * 37 % 101 - 50) / 20, n * 61 % 97 / 97) for n in range(400)]
REFERENCE = re.compile(r"\$\{(aws_\w+)\.(\w+)\.(\w+)\}")


def run(zone: Zone) -> str:
    """Take the zone's first environment to a registered package; return what was in the way."""
    environment = next(iter(zone.environments), None)
    recipe, chosen = recipe_of(zone, environment), words(zone, environment, offline=True)
    _put_data(recipe)
    if problem := said(called("package", *chosen)):
        return problem
    if problem := _deployed(zone, chosen, str(recipe.aws.region)):
        return problem
    verb = ["upsert", *chosen, "--start"] if zone.deploy == "upsert" else ["start", *chosen]
    return said(called(*verb, "--wait")) or _missing(recipe)


def _put_data(recipe: Recipe) -> None:
    """Put small data wherever the recipe has an input or a channel of data."""
    lines = (f"{n},{x},{int(luck < 1 / (1 + math.exp(-1.5 * x)))}\n" for n, x, luck in ROWS)
    table = {"table.csv": "".join(lines).encode()}
    texts = pack(iter(TEXTS))
    data = recipe.data
    uris = ([data.input] if data.input else [one.uri for one in data.inputs]) if data else []
    places = dict.fromkeys(filter(None, uris), texts)
    places |= dict.fromkeys(recipe.train.channels.values(), table)
    places |= dict.fromkeys(recipe.evaluate.channels.values(), table)
    region = str(recipe.aws.region)
    s3 = client("s3", region)
    for uri, files in places.items():
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        ensure_bucket(s3, bucket, region)
        sync(s3, bucket, prefix.rstrip("/"), files)


def _deployed(zone: Zone, chosen: list[str], region: str) -> str:
    """Deploy roles, and the pipeline unless an upsert does; return what was in the way."""
    if zone.one_role:
        return ""
    if zone.deploy == "upsert":
        return said(called("permissions", *chosen, "--deploy"))
    done = rendered(zone, chosen, zone.deploy)
    if problem := said(done):
        return problem
    if zone.deploy == "cloudformation":
        _stack(zone, done.stdout, region)
    else:
        more = [p.read_text(encoding="utf-8") for p in sorted(zone.folder.glob("*.tf.json"))]
        Terraform(region).apply([done.stdout, *more])
    return ""


def _stack(zone: Zone, template: str, region: str) -> None:
    given = {"PermissionsBoundary": zone.boundary} if zone.boundary else {}
    if zone.boundary:
        name = zone.boundary.rpartition("/")[2]
        path = zone.boundary.partition(":policy")[2].removesuffix(name)
        allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        client("iam").create_policy(PolicyName=name, Path=path, PolicyDocument=document)
    client("cloudformation", region).create_stack(
        StackName="zone",
        TemplateBody=template,
        Capabilities=["CAPABILITY_NAMED_IAM"],
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()],
    )


class Terraform:
    """Create what Terraform's JSON declares, by the calls that its provider makes."""

    def __init__(self, region: str) -> None:
        self._iam, self._sagemaker = client("iam"), client("sagemaker", region)
        self._arns: dict[tuple[str, str], str] = {}
        self._names: dict[tuple[str, str], str] = {}

    def apply(self, files: list[str]) -> None:
        """Create all resources; the kinds in an order in which each finds what it refers to."""
        documents = [json.loads(text)["resource"] for text in files]
        for kind in (
            *("aws_iam_openid_connect_provider", "aws_iam_role", "aws_iam_policy"),
            *("aws_iam_role_policy", "aws_iam_role_policy_attachment"),
            *("aws_sagemaker_model_package_group", "aws_sagemaker_pipeline"),
        ):
            for name, given in ((n, g) for d in documents for n, g in d.get(kind, {}).items()):
                attributes = self._resolved(given)
                arn = getattr(self, f"_{kind.removeprefix('aws_')}")(attributes)
                self._arns[kind, name] = arn or ""
                self._names[kind, name] = attributes.get("name", "")

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self._resolved(key): self._resolved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolved(inner) for inner in value]
        if not isinstance(value, str) or value == "${var.permissions_boundary}":
            return value
        known = {"arn": self._arns, "name": self._names}
        text = REFERENCE.sub(lambda found: known[found[3]][found[1], found[2]], value)
        return text.replace("$${", "${").replace("%%{", "%{")

    def _iam_openid_connect_provider(self, given: Mapping[str, Any]) -> str:
        return self._iam.create_open_id_connect_provider(
            Url=given["url"], ClientIDList=given["client_id_list"]
        )["OpenIDConnectProviderArn"]

    def _iam_role(self, given: Mapping[str, Any]) -> str:
        return self._iam.create_role(
            RoleName=given["name"],
            Path=given["path"],
            Description=given["description"],
            AssumeRolePolicyDocument=given["assume_role_policy"],
            Tags=tags(given),
        )["Role"]["Arn"]

    def _iam_policy(self, given: Mapping[str, Any]) -> str:
        return self._iam.create_policy(
            PolicyName=given["name"], PolicyDocument=given["policy"], Tags=tags(given)
        )["Policy"]["Arn"]

    def _iam_role_policy(self, given: Mapping[str, Any]) -> None:
        self._iam.put_role_policy(
            RoleName=given["role"], PolicyName=given["name"], PolicyDocument=given["policy"]
        )

    def _iam_role_policy_attachment(self, given: Mapping[str, Any]) -> None:
        self._iam.attach_role_policy(RoleName=given["role"], PolicyArn=given["policy_arn"])

    def _sagemaker_model_package_group(self, given: Mapping[str, Any]) -> None:
        self._sagemaker.create_model_package_group(
            ModelPackageGroupName=given["model_package_group_name"], Tags=tags(given)
        )

    def _sagemaker_pipeline(self, given: Mapping[str, Any]) -> None:
        place = given["pipeline_definition_s3_location"]
        self._sagemaker.create_pipeline(
            PipelineName=given["pipeline_name"],
            PipelineDisplayName=given["pipeline_display_name"],
            PipelineDefinitionS3Location={
                "Bucket": place["bucket"],
                "ObjectKey": place["object_key"],
            },
            RoleArn=given["role_arn"],
            Tags=tags(given),
        )


def tags(given: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return Terraform's tags in the form of AWS's API."""
    return [{"Key": key, "Value": value} for key, value in given["tags"].items()]


def _missing(recipe: Recipe) -> str:
    """Say what the run lacks: a package, or one of the recipe's tags on pipeline, jobs, group."""
    sagemaker = client("sagemaker", recipe.aws.region)
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
