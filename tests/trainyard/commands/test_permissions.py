"""``trainyard permissions`` over a file and over a pipeline in AWS."""

import json
from pathlib import Path

import pytest
import yaml

from tests.trainyard.emulator.harness import cloud, pipeline, process_step

# Each call is a process: in this one the application may have registered roles of its own.
pytestmark = pytest.mark.long

ROLE = "arn:aws:iam::123456789012:role/demo"
JOB_ROLE = f"{ROLE}-job"


@pytest.fixture
def body() -> str:
    step = process_step("P", "true", outputs={"o": "s3://bkt/out"})
    step["Arguments"]["RoleArn"] = JOB_ROLE
    return json.dumps(pipeline([step]))


def test_a_files_policies_need_no_aws(run_python, tmp_path: Path, body: str):
    file = tmp_path / "definition.json"
    file.write_text(body)
    names = ("--name", "demo", "--region", "eu-west-1", "--pipeline-role", ROLE)
    verb = ("-m", "trainyard", "permissions", str(file))
    printed = run_python(*verb, *names, "--role", "pipeline")
    assert printed.returncode == 0, printed.stderr
    passed = [s["Resource"] for s in json.loads(printed.stdout)["Statement"]
              if "iam:PassRole" in s["Action"]]  # fmt: skip
    assert passed == [[JOB_ROLE]]
    for options, said in (
        ((), "give --name, --pipeline-role"),
        (("--role", "events"), "give --name, --pipeline-role"),
        (("--pipeline", "demo"), "only one of DEFINITION, --pipeline NAME can be given"),
        (names, "give --role job|pipeline|events, --template or --endpoints"),
        ((*names, "--role", "jobs"), "--role jobs: is not a role; nearest valid name: job"),
    ):
        done = run_python(*verb, *options)
        assert done.returncode == 1 and said in done.stderr, done.stderr


def test_what_a_pipeline_in_aws_needs_is_printed_and_compared(run_python, tmp_path: Path, body):
    with cloud(tmp_path / "aws") as aws:
        aws.sm.create_pipeline(
            PipelineName="demo", PipelineDefinition=body, RoleArn=ROLE, ClientRequestToken="t" * 32
        )
        verb = ("-m", "trainyard", "permissions", "--pipeline", "demo")
        printed = run_python(*verb, "--template", env=aws.endpoint.env)
        assert printed.returncode == 0, printed.stderr
        assert [*yaml.safe_load(printed.stdout)["Resources"]] == [
            "JobRole",
            "PipelineRole",
            "EventsRole",
        ]
        file = tmp_path / "roles.yaml"
        file.write_text(printed.stdout)
        same = run_python(*verb, "--check", str(file), env=aws.endpoint.env)
        assert "exactly what is needed (job, pipeline, events)" in same.stdout


def test_a_definition_that_says_its_region_and_roles_needs_no_further_option(run_python):
    """As the README prints it."""
    file = "tests/trainyard/validate/definitions/training.json"
    done = run_python("-m", "trainyard", "permissions", file, "--role", "job")
    assert done.returncode == 0, done.stderr
    repositories = [r for s in json.loads(done.stdout)["Statement"]
                    for r in s["Resource"] if r.startswith("arn:aws:ecr")]  # fmt: skip
    assert repositories == ["arn:aws:ecr:us-east-1:763104351884:repository/pytorch-training"]
    assert ":us-east-1:111122223333:log-group:" in done.stdout


def test_gaps_are_named_and_told_by_the_exit_status(run_python, tmp_path: Path, body: str):
    document = json.loads(body)
    cleanup = {"Resources": {"S3": [{"StepName": "P"}]}}
    clean = {"Name": "Clean", "Type": "Cleanup", "Arguments": cleanup, "DependsOn": ["P"]}
    document["Steps"].append(clean)
    file, given = tmp_path / "definition.json", tmp_path / "given.json"
    file.write_text(json.dumps(document))
    names = ("--name", "demo", "--region", "eu-west-1", "--pipeline-role", ROLE)
    verb = ("-m", "trainyard", "permissions", str(file), *names)
    printed = run_python(*verb, "--role", "pipeline")
    said = "step Clean: permissions of its type Cleanup are not derived"
    assert printed.returncode == 2 and f"gap in pipeline: {said}" in printed.stderr
    made = run_python(*verb, "--template")
    assert made.returncode == 2
    gaps = yaml.safe_load(made.stdout)["Metadata"]["Gaps"]
    assert sorted(gaps) == ["job", "pipeline"] and gaps["job"][0].startswith(said)

    policy = json.loads(printed.stdout)
    deletes = {"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::bkt/out/*"}
    for statements, status, told in (
        (policy["Statement"], 2, "what can be derived (pipeline)"),
        ([*policy["Statement"], deletes], 2, "excess statement"),
        (policy["Statement"][1:], 1, "shortage"),
    ):
        given.write_text(json.dumps(policy | {"Statement": statements}))
        checked = run_python(*verb, "--role", "pipeline", "--check", str(given))
        assert checked.returncode == status and told in checked.stdout, checked.stdout
