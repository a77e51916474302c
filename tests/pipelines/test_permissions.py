"""``python -m pipelines.permissions`` over a definition that is not of a recipe."""

import json
from pathlib import Path

import boto3
import pytest

from pipelines.infrastructure.roles_stack import build_roles_template
from tests.conftest import call_module
from tests.trainyard.emulator.harness import pipeline, process_step
from tests.trainyard.permissions.test_policy_answer import allow
from trainyard.emulator.client_environment import apply_environment
from trainyard.permissions.pipeline_subject import parse_subject


@pytest.fixture
def demo(tmp_path: Path) -> list[str]:
    """A definition JSON file, and the options that say what it does not."""
    role = "arn:aws:iam::123456789012:role/demo"
    step = process_step("P", "true", outputs={"o": "s3://bkt/out"})
    step["Arguments"]["RoleArn"] = f"{role}-job"
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(pipeline([step])))
    names = ["--name", "demo", "--region", "eu-west-1", "--pipeline-role", role]
    return [str(file), *names]


def test_a_policy_file_is_checked_without_aws(demo, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # a call would fail
    printed = call_module("pipelines.permissions", *demo, "--role", "job")
    assert printed.returncode == 0, printed.stderr
    assert "ecr:GetAuthorizationToken on *: the token is for the whole registry" in printed.stderr
    policy = json.loads(printed.stdout)
    file = tmp_path / "policy.json"

    file.write_text(json.dumps({"RoleName": "demo", "PolicyDocument": policy}))  # get-role-policy's
    fine = call_module("pipelines.permissions", *demo, "--role", "job", "--check", str(file))
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "exactly what is needed (job)" in fine.stdout

    policy["Statement"].append(allow("s3:*", "*", Sid="Handy"))
    file.write_text(json.dumps(policy))
    over = call_module("pipelines.permissions", *demo, "--role", "job", "--check", str(file))
    assert over.returncode == 1
    assert over.stdout.strip() == "job: excess Handy: s3:* on *"


def test_what_is_wrong_is_said_and_no_policy_derived_from_a_definition_that_is_not_valid(demo):
    file = Path(demo[0])
    (file.parent / "untyped.json").write_text(
        file.read_text().replace('"Type": "Processing", ', "")
    )
    untyped = [str(file.parent / "untyped.json"), *demo[1:]]
    for words, said in (
        ((*demo, "--role", "ci"), "give --root s3://bucket/prefix"),
        ((*demo, "--check", "README.md", "--role", "job"), "README.md: is neither YAML nor JSON"),
        ((*demo, "--check", "nowhere.json"), "nowhere.json: cannot be read"),
        ((*demo, "--check", "pyproject.toml"), "pyproject.toml: "),
        ((*untyped, "--role", "job"), r"untyped.json: $.Steps[0]"),
    ):
        done = call_module("pipelines.permissions", *words)
        assert done.returncode == 1 and said in done.stderr, done.stderr


@pytest.mark.long
def test_the_roles_are_deployed_and_hold_the_run_to_them(demo, emulator):
    root, definition = ["--root", "s3://bkt/demo", "--deploy"], Path(demo[0])
    with apply_environment(emulator.env):
        for done in ("created", "updated"):  # moto does not compare templates, as AWS does
            deployed = call_module("pipelines.permissions", *demo, *root)
            definition.write_text(definition.read_text().replace("bkt/out", "bkt/out2"))
            assert deployed.stdout == f"stack demo-roles: {done}\n"
        role = boto3.client("iam").get_role(RoleName="demo-job")["Role"]
        iam = {"RoleName": "demo-job", "PolicyName": "derived"}
        policy = boto3.client("iam").get_role_policy(**iam)["PolicyDocument"]
    trust = json.dumps(role["AssumeRolePolicyDocument"])
    assert "arn:aws:s3:::bkt/out2/*" in json.dumps(policy)  # the update's, too
    assert "arn:aws:sagemaker:eu-west-1:123456789012:processing-job/*" in trust
    caller = emulator.app.aws.authority.find_role_caller(role["Arn"])
    assert caller.iam_record.is_derived


def test_a_role_that_pipeline_and_jobs_share_has_both_policies(demo):
    text = Path(demo[0]).read_text().replace("role/demo-job", "role/demo")
    role = "arn:aws:iam::123456789012:role/demo"
    subject = parse_subject(
        text, "d", name="demo", region="eu-west-1", role=role, root="s3://bkt/d"
    )
    resources = build_roles_template(subject)["Resources"]
    assert "JobRole" not in resources
    properties = resources["PipelineRole"]["Properties"]
    derived, jobs = (json.dumps(policy["PolicyDocument"]) for policy in properties["Policies"])
    assert "sagemaker:CreateProcessingJob" in derived and "s3:PutObject" in jobs
    trust = json.dumps(properties["AssumeRolePolicyDocument"])
    assert "pipeline/demo/*" in trust and "processing-job/*" in trust
