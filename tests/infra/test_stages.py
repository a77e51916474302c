"""The stages of infra/ci.yaml: their buildspecs for real, one after the other, on one emulator.

prod.yaml is the recipe: infra/roles.yaml is derived from it.
"""

from pathlib import Path

import pytest

from tests.infra.codebuild import head, recorded

pytestmark = pytest.mark.long

RECIPE, PIPELINE = "recipes/prod.yaml", "trainyard-prod"
PLAN, UPSERT = "infra/buildspec/plan.yml", "infra/buildspec/upsert.yml"
PLANNED = ["install 0", "pre_build 0", "pre_build 0", "build 0"]


@pytest.mark.sweep
def test_plan_then_upsert_then_nothing_changes(codebuild, sagemaker, source: Path, tmp_path: Path):
    first = codebuild(PLAN, RECIPE=RECIPE)
    assert (first.status, first.ran) == (0, PLANNED), first.output
    assert "roles.yaml: exactly what is needed" in first.output
    assert first.exported == ["PLAN_CHANGE=the pipeline changes", "PLAN_BUILD=trainyard:1"]
    assert sagemaker.list_pipelines()["PipelineSummaries"] == [], "a plan changes nothing"

    (source / "plan.json").rename(tmp_path / "plan.json")  # artifacts: files
    applied = codebuild(UPSERT, RECIPE=RECIPE, CODEBUILD_SRC_DIR_Plan=str(tmp_path))
    assert (applied.status, applied.ran) == (0, ["install 0", "build 0"]), applied.output
    deployed = sagemaker.describe_pipeline(PipelineName=PIPELINE)
    assert recorded(sagemaker, deployed["PipelineDefinition"])["commit"] == head(source)
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
