"""CloudFormation and Terraform's JSON of a recipe: deployed here, and held to the provider."""

import functools
import io
import json
import re
import subprocess
import sys
import zipfile

import boto3
import pytest
import yaml

from pipelines.definition import from_recipe
from tests.conftest import CHECKOUT, called
from tests.pipelines.upserting import clean_aws

pytestmark = pytest.mark.long
LAPTOP = ("--recipe", str(CHECKOUT / "recipes/laptop.yaml"))
JOBS = "aws.job_role=arn:aws:iam::123456789012:role/team/jobs"
PROVIDER = "cdktf-cdktf-provider-aws==21.22.1"
"""Python bindings of the provider 6.25.0: a module for each resource, whose constructor has its
attributes."""
ATTRIBUTES = {
    "aws_iam_role": {
        "name", "path", "description", "assume_role_policy", "permissions_boundary", "tags",
    },
    "aws_iam_role_policy": {"name", "role", "policy"},
    "aws_iam_policy": {"name", "description", "policy", "tags"},
    "aws_cloudformation_stack": {"name", "template_body", "parameters", "capabilities", "tags"},
    "aws_sagemaker_model_package_group": {"model_package_group_name", "tags"},
    "aws_sagemaker_pipeline": {
        "pipeline_name", "pipeline_display_name", "pipeline_description", "role_arn",
        "pipeline_definition_s3_location", "parallelism_configuration", "tags",
    },
}  # fmt: skip
"""Those that are written; the sweep below finds each in the provider."""


@functools.cache  # the same recipe gives the same text
def rendered(form: str, *more: str) -> str:
    done = called("pipelines.infra", *LAPTOP, "--set", JOBS, "--as", form, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stack_of_it_owns_the_pipeline_and_its_roles(emulator, monkeypatch):
    clean_aws(emulator.env, monkeypatch)
    template = rendered("cloudformation")
    packaged = called("pipelines.package", *LAPTOP, "--set", JOBS)
    assert packaged.returncode == 0, packaged.stderr
    stacks, sagemaker = boto3.client("cloudformation"), boto3.client("sagemaker")
    stacks.create_stack(StackName="s", TemplateBody=template, Capabilities=["CAPABILITY_NAMED_IAM"])
    wanted = from_recipe(CHECKOUT / "recipes/laptop.yaml", [JOBS])
    there = sagemaker.describe_pipeline(PipelineName=wanted.name)
    assert there["PipelineDefinition"] == wanted.body
    assert there["RoleArn"] == wanted.role
    [role] = boto3.client("iam").list_roles(PathPrefix="/team/")["Roles"]
    assert role["RoleName"] == "jobs"
    said = called("pipelines.plan", *LAPTOP, "--set", JOBS).stdout
    assert "is new" not in said
    stacks.delete_stack(StackName="s")
    assert sagemaker.list_pipelines()["PipelineSummaries"] == []


@pytest.mark.parametrize("key", ["null", "alias/ml", "1234abcd-12ab-34cd-56ef-1234567890ab"])
def test_cfn_lint_has_nothing_to_say(tmp_path, key):
    file = tmp_path / "pipeline.yaml"
    file.write_text(rendered("cloudformation", "--set", f"aws.kms_key={key}"))
    lint = "import sys; from cfnlint.runner import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", lint, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_terraform_gets_the_same_policies_and_no_template_by_mistake():
    found = json.loads(rendered("terraform", "--set", "aws.tags={owner: '${team}'}"))
    resources = found["resource"]
    for kind, named in resources.items():
        for resource in named.values():
            assert resource.keys() <= ATTRIBUTES[kind]
    stack = yaml.safe_load(rendered("cloudformation"))["Resources"]
    roles = {k for k, v in stack.items() if v["Type"] == "AWS::IAM::Role"}
    assert resources["aws_iam_role"].keys() == roles == resources["aws_iam_role_policy"].keys()
    pipeline = resources["aws_sagemaker_pipeline"]["Pipeline"]
    for kind in resources.keys() - {"aws_iam_role_policy"}:  # a part of its role
        for name, resource in resources[kind].items():
            assert resource["tags"]["owner"] == "$${team}", name
    laptop = {"Key": "environment", "Value": "laptop"}
    tagged = {name for name, one in stack.items() if laptop in one["Properties"].get("Tags", ())}
    assert tagged == {*roles, "Pipeline", "Group"}
    place = stack["Pipeline"]["Properties"]["PipelineDefinition"]["PipelineDefinitionS3Location"]
    ours = pipeline["pipeline_definition_s3_location"]
    assert ours["object_key"].endswith("/definition.json") and ours["bucket"] == place["Bucket"]
    interpolated = set(re.findall(r"(?<!\$)\$\{([^}]*)\}", json.dumps(found)))
    assert interpolated == {"var.permissions_boundary"} | {
        f"aws_iam_role.{name}.name" for name in roles
    } | {"aws_iam_role.PipelineRole.arn"}


@pytest.mark.parametrize("form", ["cloudformation", "terraform"])
@pytest.mark.parametrize(
    ("roles", "says"),
    [
        ((), "its role is arn:aws:iam::123456789012:role/trainyard, its jobs' arn:aws:iam::12345"),
        # IAM has one role of a name, whatever its path and case
        (("aws.job_role=arn:aws:iam::123456789012:role/team/Trainyard",), "are both called"),
        (("aws.job_role=arn:aws:iam::123456789012:role/trainyard-laptop-events",), "EventsRole"),
    ],
)
def test_two_roles_of_one_name_are_refused_in_every_language(form: str, roles, says: str):
    given = [word for role in roles for word in ("--set", role)]
    done = called("pipelines.infra", *LAPTOP, *given, "--as", form)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr and "aws.job_role" in done.stderr


def test_what_exists_is_referred_to():
    found = json.loads(rendered("terraform", "--no-roles", "--no-group"))["resource"]
    assert list(found) == ["aws_sagemaker_pipeline"]
    assert found["aws_sagemaker_pipeline"]["Pipeline"]["role_arn"].startswith("arn:aws:iam::")


@pytest.mark.sweep
def test_each_attribute_is_the_providers(tmp_path):
    words = ["-m", "pip", "download", "--no-deps", "-q", "-d", str(tmp_path), PROVIDER]
    subprocess.run([sys.executable, *words], check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for kind, attributes in ATTRIBUTES.items():
            folder = kind.removeprefix("aws_")
            name = f"cdktf_cdktf_provider_aws/{folder}/__init__.py"
            text = io.TextIOWrapper(archive.open(name), encoding="utf-8").read()
            start = text.index("def __init__")
            signature = text[start : text.index(") -> None:", start)]
            known = re.findall(r"^ {8}(\w+): (typing\.Optional)?", signature, re.MULTILINE)
            required = {n for n, optional in known if not optional} - {"self", "scope", "id_"}
            assert required <= attributes <= {n for n, _ in known}, kind
