"""buildspec.yml for real: its commands, as written, in a clean clone, against the emulator."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipelines.compile.compilation import Asset, collect_step_code
from steps.gate.config import PACKAGES
from tests.infra.codebuild import JOB_ROLE, ROLE, head, read_record, script

pytestmark = pytest.mark.long
QUICK = "tests/trainyard/common --collect-only"
"""``make test T=…`` leaves out the style: a build whose style fails has a test of its own."""


def executions(sagemaker: Any) -> list[str]:
    answer = sagemaker.list_pipeline_executions(PipelineName="trainyard-laptop")
    return [e["PipelineExecutionArn"] for e in answer["PipelineExecutionSummaries"]]


def names(sagemaker: Any) -> list[str]:
    return [each["PipelineName"] for each in sagemaker.list_pipelines()["PipelineSummaries"]]


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
    assert names(sagemaker) == []


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
        files = collect_step_code(source, step, None, packages)
        code = Asset("ci-artifacts", "trainyard/trainyard-laptop/code", files)
        assert f'"{code.uri}"' in body
    assert read_record(sagemaker, body)["commit"] == head(source)


def test_a_plan_over_budget_ends_the_build(codebuild, sagemaker, source: Path):
    recipe = source / "dear.yaml"
    text = (source / "recipes/laptop.yaml").read_text(encoding="utf-8")
    recipe.write_text(text.replace("name: trainyard-laptop", "name: dear", 1)
                      + "\nbudget: {usd_per_run: 0.01}\n")  # fmt: skip
    status, ran, _, output = codebuild("buildspec.yml", RECIPE="dear.yaml", T=QUICK)
    recipe.unlink()
    assert (status, ran) == (1, ["install 0", "pre_build 0", "build 1"]), output
    assert "budget: a run may cost" in output
    assert "dear" not in names(sagemaker)


@pytest.mark.parametrize(
    ("command", "expected"), [("false\n", 1), ("true\n", 0), ("(exit 3)\n", 3), ("cd /nowhere", 1)]
)
def test_the_runner_itself_stops_where_codebuild_does(command: str, expected: int, tmp_path: Path):
    """Otherwise a green test above would mean nothing."""
    commands = {"install": ["export KEPT=yes"], "build": [command, 'test "$KEPT" = yes'],
                "post_build": ["echo after"]}  # fmt: skip
    phases = {phase: {"commands": lines} for phase, lines in commands.items()}
    buildspec = {"version": 0.2, "env": {"shell": "bash"}, "phases": phases}
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["bash", "-c", script(buildspec)],
        env={**os.environ, "TRACE": str(trace)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == expected
    assert done.stdout == "after\n"
    assert trace.read_text().count("build 0") == (3 if expected == 0 else 1)


# the stages of infra/ci.yaml: their buildspecs for real, one after the other, on one emulator


RECIPE, PIPELINE = "recipes/prod.yaml", "trainyard-prod"
PLAN, UPSERT = "infra/buildspec/plan.yml", "infra/buildspec/upsert.yml"
PLANNED = ["install 0", "pre_build 0", "pre_build 0", "build 0"]


@pytest.mark.sweep
def test_plan_then_upsert_then_nothing_changes(codebuild, sagemaker, source: Path, tmp_path: Path):
    first = codebuild(PLAN, RECIPE=RECIPE)
    assert (first.status, first.ran) == (0, PLANNED), first.output
    assert "roles.yaml: exactly what is needed" in first.output
    assert first.exported == ["PLAN_CHANGE=the pipeline changes", "PLAN_BUILD=trainyard:1"]
    assert PIPELINE not in names(sagemaker), "a plan changes nothing"

    (source / "plan.json").rename(tmp_path / "plan.json")  # artifacts: files
    applied = codebuild(UPSERT, RECIPE=RECIPE, CODEBUILD_SRC_DIR_Plan=str(tmp_path))
    assert (applied.status, applied.ran) == (0, ["install 0", "build 0"]), applied.output
    deployed = sagemaker.describe_pipeline(PipelineName=PIPELINE)
    assert read_record(sagemaker, deployed["PipelineDefinition"])["commit"] == head(source)
    runs = sagemaker.list_pipeline_executions(PipelineName=PIPELINE)["PipelineExecutionSummaries"]
    assert len(runs) == 1

    again = codebuild(PLAN, RECIPE=RECIPE)
    assert (again.status, again.ran) == (0, PLANNED), again.output
    assert again.exported[0] == "PLAN_CHANGE=nothing changes"


def test_roles_that_no_longer_fit_stop_the_plan(codebuild, source: Path):
    roles = source / "infra/roles.yaml"
    whole = roles.read_text(encoding="utf-8")
    roles.write_text(whole.replace("s3:GetObject\n", "s3:GetObjectVersion\n", 1))
    refused = codebuild(PLAN, RECIPE=RECIPE)
    roles.write_text(whole)
    assert (refused.status, refused.ran) == (1, ["install 0", "pre_build 1"]), refused.output
    for told in ("shortage Read: s3:GetObject on", "excess Read: s3:GetObjectVersion on"):
        assert f"job: {told}" in refused.output
