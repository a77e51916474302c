"""CloudFormation and Terraform's JSON of a recipe, deployed here."""

import functools
import json
import subprocess
import sys

import boto3
import pytest
import yaml

from pipelines.definition import from_recipe
from tests.conftest import CHECKOUT, called
from tests.pipelines.upserting import clean_aws

pytestmark = pytest.mark.long
LAPTOP = ("--recipe", str(CHECKOUT / "recipes/laptop.yaml"))
JOBS = "aws.job_role=arn:aws:iam::123456789012:role/team/jobs"


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


def terraform(*more: str) -> tuple[dict, dict]:
    """Return the variables and the stack of Terraform's configuration."""
    found = json.loads(rendered("terraform", *more))
    [stack] = found["resource"]["aws_cloudformation_stack"].values()
    return found["variable"], stack


def test_terraform_owns_a_stack_of_the_very_template():
    tags = ("--set", "aws.tags={owner: '${team}'}")
    variables, stack = terraform(*tags)
    assert stack["name"] == "trainyard-laptop" and stack["tags"]["owner"] == "$${team}"
    assert stack["template_body"].replace("$${", "${") == rendered("cloudformation", *tags)
    assert len(stack["template_body"]) < 51_200  # CloudFormation's limit of a template in a request
    assert variables["PermissionsBoundary"]["default"] == ""
    assert stack["parameters"] == {name: f"${{var.{name}}}" for name in variables}


def test_what_the_recipe_does_not_say_is_a_variable():
    variables, stack = terraform("--ci", "gitlab")
    assert stack["parameters"]["Project"] == "${var.Project}"
    assert "default" not in variables["Project"]
    assert variables["PipelineName"]["default"] == "trainyard-laptop"
    assert stack["name"] == "trainyard-laptop-gitlab"


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
    found = yaml.safe_load(rendered("cloudformation", "--no-roles", "--no-group"))["Resources"]
    assert list(found) == ["Pipeline"]
    assert found["Pipeline"]["Properties"]["RoleArn"].startswith("arn:aws:iam::")
