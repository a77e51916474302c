"""CloudFormation and Terraform's JSON of a recipe, deployed here."""

import functools
import json

import boto3
import pytest
import yaml
from cfnlint import api, core

from pipelines.definition import from_recipe
from tests.conftest import CHECKOUT, call_module
from tests.pipelines.upserting import clean_aws

pytestmark = pytest.mark.long
LAPTOP = ("--recipe", str(CHECKOUT / "recipes/laptop.yaml"))
JOBS = "aws.job_role=arn:aws:iam::123456789012:role/team/jobs"


@functools.cache  # the same recipe gives the same text
def render_infra(form: str, *more: str) -> str:
    done = call_module("pipelines.infra", *LAPTOP, "--set", JOBS, "--as", form, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stack_of_it_owns_the_pipeline_and_its_roles(emulator, monkeypatch):
    clean_aws(emulator.env, monkeypatch)
    template = render_infra("cloudformation")
    packaged = call_module("pipelines.package", *LAPTOP, "--set", JOBS)
    assert packaged.returncode == 0, packaged.stderr
    stacks, sagemaker = boto3.client("cloudformation"), boto3.client("sagemaker")
    stacks.create_stack(StackName="s", TemplateBody=template, Capabilities=["CAPABILITY_NAMED_IAM"])
    wanted = from_recipe(CHECKOUT / "recipes/laptop.yaml", [JOBS])
    there = sagemaker.describe_pipeline(PipelineName=wanted.name)
    assert there["PipelineDefinition"] == wanted.body
    assert there["RoleArn"] == wanted.role
    [role] = boto3.client("iam").list_roles(PathPrefix="/team/")["Roles"]
    assert role["RoleName"] == "jobs"
    said = call_module("pipelines.plan", *LAPTOP, "--set", JOBS).stdout
    assert "is new" not in said
    stacks.delete_stack(StackName="s")
    assert sagemaker.list_pipelines()["PipelineSummaries"] == []


@pytest.mark.parametrize("key", ["null", "alias/ml", "1234abcd-12ab-34cd-56ef-1234567890ab"])
def test_cfn_lint_has_nothing_to_say(key):
    template = render_infra("cloudformation", "--set", f"aws.kms_key={key}")
    assert not api.lint(template, core.get_rules([], [], ["W", "E"]), ["us-east-1"])


def test_terraform_owns_a_stack_of_the_very_template():
    tags = ("--set", "aws.tags={owner: '${team}'}")
    found = json.loads(render_infra("terraform", *tags, "--ci", "gitlab"))
    variables, [stack] = found["variable"], found["resource"]["aws_cloudformation_stack"].values()
    assert stack["name"] == "trainyard-laptop-gitlab" and stack["tags"]["owner"] == "$${team}"
    template = render_infra("cloudformation", *tags, "--ci", "gitlab")
    assert stack["template_body"].replace("$${", "${") == template
    assert stack["parameters"] == {name: f"${{var.{name}}}" for name in variables}
    assert "default" not in variables["Project"], "the recipe does not say it"
    assert variables["PipelineName"]["default"] == "trainyard-laptop"
    found = json.loads(render_infra("terraform", *tags))
    [stack] = found["resource"]["aws_cloudformation_stack"].values()
    assert stack["name"] == "trainyard-laptop"
    assert len(stack["template_body"]) < 51_200  # CloudFormation's limit of a template in a request
    assert found["variable"]["PermissionsBoundary"]["default"] == ""


@pytest.mark.parametrize(
    ("form", "role", "says"),
    [
        ("terraform", "trainyard", 
         "its role is arn:aws:iam::123456789012:role/trainyard, its jobs' arn:aws:iam::12345"),
        # IAM has one role of a name, whatever its path and case
        ("cloudformation", "team/Trainyard", "are both called"),
        ("cloudformation", "trainyard-laptop-events", "EventsRole"),
    ],
)  # fmt: skip
def test_two_roles_of_one_name_are_refused_in_every_language(form: str, role: str, says: str):
    jobs = ("--set", f"aws.job_role=arn:aws:iam::123456789012:role/{role}")
    done = call_module("pipelines.infra", *LAPTOP, *jobs, "--as", form)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr and "aws.job_role" in done.stderr


def test_what_exists_is_referred_to():
    found = yaml.safe_load(render_infra("cloudformation", "--no-roles", "--no-group"))["Resources"]
    assert list(found) == ["Pipeline"]
    assert found["Pipeline"]["Properties"]["RoleArn"].startswith("arn:aws:iam::")
