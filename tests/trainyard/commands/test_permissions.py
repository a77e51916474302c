"""``trainyard permissions`` over a file and over a pipeline in AWS."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from tests.trainyard.emulator.harness import cloud, pipeline, process_step

pytestmark = pytest.mark.long

ROLE = "arn:aws:iam::123456789012:role/demo"
JOB_ROLE = f"{ROLE}-job"
NAMES = ("--name", "demo", "--region", "eu-west-1", "--pipeline-role", ROLE)
CALLS = """
import json, sys
from tests.conftest import call_module
for arguments in json.loads(sys.argv[1]):
    done = call_module("trainyard.commands.permissions", *arguments)
    print(json.dumps([arguments, done.returncode, done.stdout, done.stderr]))
"""


@pytest.fixture
def verb_caller(run_python: Callable) -> Callable[..., list[CompletedProcess]]:
    """Calls the verb with each of some arguments, all in one process that is not this one.

    In this one the application may have registered roles of its own.
    """

    def ask(*calls: tuple[object, ...], **more: dict[str, str]) -> list[CompletedProcess]:
        given = json.dumps([[str(argument) for argument in call] for call in calls])
        done = run_python("-c", CALLS, given, **more)
        assert done.returncode == 0, done.stderr
        return [CompletedProcess(*json.loads(line)) for line in done.stdout.splitlines()]

    return ask


@pytest.fixture
def document() -> dict:
    step = process_step("P", "true", outputs={"o": "s3://bkt/out"})
    step["Arguments"]["RoleArn"] = JOB_ROLE
    return pipeline([step])


@pytest.fixture
def file(tmp_path: Path, document: dict) -> Path:
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(document))
    return path


AS_README = "tests/trainyard/validate/definitions/training.json"


def test_a_files_policies_need_no_aws(verb_caller: Callable, file: Path):
    refused = [
        ((), "give --name, --pipeline-role"),
        (("--role", "events"), "give --name, --pipeline-role"),
        (("--pipeline", "demo"), "only one of DEFINITION, --pipeline NAME can be given"),
        (NAMES, "give --role job|pipeline|events, --template or --endpoints"),
        ((*NAMES, "--role", "jobs"), "--role jobs: is not a role; nearest valid name: job"),
    ]
    printed, bare, *rest = verb_caller(
        (file, *NAMES, "--role", "pipeline"),
        (AS_README, "--role", "job"),  # which says its region and roles
        *((file, *options) for options, _ in refused),
    )
    assert printed.returncode == bare.returncode == 0, printed.stderr + bare.stderr
    passed = [s["Resource"] for s in json.loads(printed.stdout)["Statement"]
              if "iam:PassRole" in s["Action"]]  # fmt: skip
    assert passed == [[JOB_ROLE]]
    repositories = [r for s in json.loads(bare.stdout)["Statement"]
                    for r in s["Resource"] if r.startswith("arn:aws:ecr")]  # fmt: skip
    assert repositories == ["arn:aws:ecr:us-east-1:763104351884:repository/pytorch-training"]
    assert ":us-east-1:111122223333:log-group:" in bare.stdout
    for done, (_, said) in zip(rest, refused, strict=True):
        assert done.returncode == 1 and said in done.stderr, done.stderr


def test_what_a_pipeline_in_aws_needs_is_printed_and_compared(
    verb_caller: Callable, tmp_path: Path, file: Path
):
    with cloud(tmp_path / "aws") as aws:
        aws.sm.create_pipeline(
            PipelineName="demo", PipelineDefinition=file.read_text(), RoleArn=ROLE,
            ClientRequestToken="t" * 32,
        )  # fmt: skip
        verb = ("--pipeline", "demo")
        [printed] = verb_caller((*verb, "--template"), env=aws.endpoint.env)
        assert printed.returncode == 0, printed.stderr
        roles = yaml.safe_load(printed.stdout)["Resources"]
        assert [*roles] == ["JobRole", "PipelineRole", "EventsRole"]
        (given := tmp_path / "roles.yaml").write_text(printed.stdout)
        [same] = verb_caller((*verb, "--check", given), env=aws.endpoint.env)
        assert "exactly what is needed (job, pipeline, events)" in same.stdout


def test_gaps_are_named_and_told_by_the_exit_status(
    verb_caller: Callable, tmp_path: Path, document: dict, file: Path
):
    cleanup = {"Resources": {"S3": [{"StepName": "P"}]}}
    clean = {"Name": "Clean", "Type": "Cleanup", "Arguments": cleanup, "DependsOn": ["P"]}
    document["Steps"].append(clean)
    file.write_text(json.dumps(document))
    verb = (file, *NAMES)
    printed, made = verb_caller((*verb, "--role", "pipeline"), (*verb, "--template"))
    said = "step Clean: permissions of its type Cleanup are not derived"
    assert printed.returncode == 2 and f"gap in pipeline: {said}" in printed.stderr
    assert made.returncode == 2
    gaps = yaml.safe_load(made.stdout)["Metadata"]["Gaps"]
    assert sorted(gaps) == ["job", "pipeline"] and gaps["job"][0].startswith(said)

    policy = json.loads(printed.stdout)
    needed = policy["Statement"]
    deletes = {"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::bkt/out/*"}
    given = [tmp_path / f"given{number}.json" for number in range(3)]
    for path, statements in zip(given, (needed, [*needed, deletes], needed[1:]), strict=True):
        path.write_text(json.dumps(policy | {"Statement": statements}))
    checked = verb_caller(*((*verb, "--role", "pipeline", "--check", path) for path in given))
    assert [done.returncode for done in checked] == [2, 2, 1]
    told = ("what can be derived (pipeline)", "excess statement", "shortage")
    assert all(words in done.stdout for words, done in zip(told, checked, strict=True))
