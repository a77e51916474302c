"""An offline run of a zone: on the emulator, deployed as the zone does, to a registered package."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from benchmarks.landing_zones.verbs import called, recipe_of, rendered, said, words
from benchmarks.landing_zones.zones import Zone
from pipelines.corpora.stdlib import pack
from pipelines.deploy.pipeline_objects import ensure_bucket, sync
from pipelines.recipe.config import Recipe
from trainyard.aws_clients import client
from trainyard.common.errors import TrainyardError

ROWS = [(f"row-{n}", (n * 37 % 101 - 50) / 20, n * 61 % 97 / 97) for n in range(400)]
CALLS: dict[str, tuple[Any, ...]] = {
    "aws_iam_openid_connect_provider": (
        *("iam", "create_open_id_connect_provider", {"client_id_list": "ClientIDList"}),
        "OpenIDConnectProviderArn",
    ),
    "aws_iam_role": (
        *("iam", "create_role"),
        {"name": "RoleName", "assume_role_policy": "AssumeRolePolicyDocument"},
        *("Role", "Arn"),
    ),
    "aws_iam_policy": (
        *("iam", "create_policy", {"name": "PolicyName", "policy": "PolicyDocument"}),
        *("Policy", "Arn"),
    ),
    "aws_iam_role_policy": (
        *("iam", "put_role_policy"),
        {"name": "PolicyName", "role": "RoleName", "policy": "PolicyDocument"},
    ),
    "aws_iam_role_policy_attachment": ("iam", "attach_role_policy", {"role": "RoleName"}),
    "aws_sagemaker_model_package_group": ("sagemaker", "create_model_package_group", {}),
    "aws_sagemaker_pipeline": ("sagemaker", "create_pipeline", {}),
}
"""Kind of resource → service, call, members that are named otherwise, where the ARN stands."""
REFERENCE = re.compile(r"\$\{(aws_\w+)\.(\w+)\.(\w+)\}")


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
    if problem := said(called("package", *chosen)):
        return problem
    if problem := _deployed(zone, chosen, str(recipe.aws.region)):
        return problem
    verb = ["upsert", *chosen, "--start"] if zone.deploy == "upsert" else ["start", *chosen]
    return said(called(*verb, "--wait")) or _missing(recipe)


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
    s3 = client("s3", region)
    for uri, files in places.items():
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        ensure_bucket(s3, bucket, region)
        sync(s3, bucket, prefix.rstrip("/"), files)


def _texts(uri: str) -> dict[str, bytes]:
    """Return files of text, other ones for each input: of equal records one is kept."""
    text = "def f{n}(x):\n    return x + {n}, '{uri}'\n"
    return pack((f"{uri}-{n}", text.format(n=n, uri=uri) * 20) for n in range(30))


def _deployed(zone: Zone, chosen: list[str], region: str) -> str:
    """Deploy roles, and the pipeline unless an upsert does; return what was in the way."""
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
        self._clients = {"iam": client("iam"), "sagemaker": client("sagemaker", region)}
        self._known: dict[tuple[str, ...], str] = {}
        """Kind, name and attribute of a resource → its value."""

    def apply(self, files: list[str]) -> None:
        """Create all resources: kinds in the order of CALLS, so that each finds what it names."""
        documents = [json.loads(text)["resource"] for text in files]
        for kind, (service, method, renamed, *path) in CALLS.items():
            for name, given in ((n, g) for d in documents for n, g in d.get(kind, {}).items()):
                attributes = self._resolved(given)
                answer = getattr(self._clients[service], method)(**_members(attributes, renamed))
                self._known[kind, name, "name"] = attributes.get("name", "")
                for key in path:
                    answer = answer[key]
                self._known[kind, name, "arn"] = answer if path else ""

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self._resolved(key): self._resolved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolved(inner) for inner in value]
        if not isinstance(value, str):
            return value
        text = REFERENCE.sub(lambda found: self._known[found.groups()], value)
        return text.replace("$${", "${").replace("%%{", "%{")


def _members(given: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """Return a request of AWS's API: the provider writes its members as Python writes names."""
    found = {
        renamed.get(name) or name.title().replace("_", ""): _members(value, {})
        if isinstance(value, Mapping) and name != "tags"
        else value
        for name, value in given.items()
        if name != "permissions_boundary"  # a variable without a value
    }
    if "Tags" in found:
        found["Tags"] = [{"Key": key, "Value": value} for key, value in found["Tags"].items()]
    return found


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
