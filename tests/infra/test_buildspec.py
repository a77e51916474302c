"""buildspec.yml for real: its commands, as written, in a clean clone, against the emulator."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipelines.compile.compilation import Asset, step_code
from steps.gate.config import PACKAGES
from tests.infra.codebuild import JOB_ROLE, ROLE, head, recorded, script

pytestmark = pytest.mark.long
QUICK = "tests/trainyard/common --collect-only"
"""``make test T=…`` leaves out the style: a build whose style fails has a test of its own."""


def executions(sagemaker: Any) -> list[str]:
    answer = sagemaker.list_pipeline_executions(PipelineName="trainyard-laptop")
    return [e["PipelineExecutionArn"] for e in answer["PipelineExecutionSummaries"]]


def test_a_failing_command_fails_the_build_and_nothing_is_upserted(
    codebuild, sagemaker, source: Path
):
    unused = source / "unused.py"
    unused.write_text("import os\n")  # what the style check of `make test` refuses
    status, ran, _, output = codebuild("buildspec.yml")
    unused.unlink()
    assert status != 0
    assert ran == ["install 0", f"pre_build {status}"]
    assert "unused.py" in output
    assert sagemaker.list_pipelines()["PipelineSummaries"] == []


def test_the_build_upserts_this_commit_and_starts_a_run_without_waiting(
    codebuild, sagemaker, source: Path
):
    status, ran, _, output = codebuild("buildspec.yml", T=QUICK)
    assert (status, ran) == (0, ["install 0", "pre_build 0", "build 0", "build 0"]), output
    assert len(executions(sagemaker)) == 1  # it ends by itself: nobody uploaded raw data
    deployed = sagemaker.describe_pipeline(PipelineName="trainyard-laptop")
    assert deployed["RoleArn"] == ROLE
    body = deployed["PipelineDefinition"]
    steps = {step["Name"]: step["Arguments"] for step in json.loads(body)["Steps"]}
    assert {steps[name]["RoleArn"] for name in ("Shard", "Train", "Evaluate", "Gate")} == {JOB_ROLE}
    # The clone's code, to the byte.
    for step, packages in (("shard", ()), ("evaluate", ()), ("gate", PACKAGES)):
        code = Asset(
            "ci-artifacts",
            "trainyard/trainyard-laptop/code",
            step_code(source, step, None, packages),
        )
        assert f'"{code.uri}"' in body
    assert recorded(sagemaker, body)["commit"] == head(source)


def test_a_plan_over_budget_ends_the_build(codebuild, sagemaker, source: Path):
    recipe = source / "dear.yaml"
    text = (source / "recipes/laptop.yaml").read_text(encoding="utf-8")
    recipe.write_text(text.replace("name: trainyard-laptop", "name: dear", 1)
                      + "\nbudget: {usd_per_run: 0.01}\n")  # fmt: skip
    status, ran, _, output = codebuild("buildspec.yml", RECIPE="dear.yaml", T=QUICK)
    recipe.unlink()
    assert (status, ran) == (1, ["install 0", "pre_build 0", "build 1"]), output
    assert "budget: a run may cost" in output
    names = [each["PipelineName"] for each in sagemaker.list_pipelines()["PipelineSummaries"]]
    assert "dear" not in names


@pytest.mark.parametrize(
    ("command", "expected"), [("false\n", 1), ("true\n", 0), ("(exit 3)\n", 3), ("cd /nowhere", 1)]
)
def test_the_runner_itself_stops_where_codebuild_does(command: str, expected: int, tmp_path: Path):
    """Otherwise a green test above would mean nothing."""
    buildspec = {
        "version": 0.2,
        "env": {"shell": "bash"},
        "phases": {
            "install": {"commands": ["export KEPT=yes"]},
            "build": {"commands": [command, 'test "$KEPT" = yes']},
            "post_build": {"commands": ["echo after"]},
        },
    }
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["bash", "-c", script(buildspec)],
        env={**os.environ, "TRACE": str(trace)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == expected
    assert done.stdout == "after\n"
    assert trace.read_text().count("build 0") == (3 if expected == 0 else 1)
