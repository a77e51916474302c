"""``trainyard permissions`` over a file and over a pipeline in AWS."""

import json
from pathlib import Path

import pytest
import yaml

from tests.trainyard.emulator.harness import cloud, pipeline, process_step

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
        (("--role", "job"), "give --name, --region and --pipeline-role"),
        (("--pipeline", "demo"), "give either a definition's JSON file or --pipeline NAME"),
        (names, "give --role job|pipeline|events, or --template"),
        ((*names, "--role", "jobs"), "--role jobs: is no role; nearest valid name: job"),
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
