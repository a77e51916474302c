"""A training that finds no capacity goes on on the recipe's other types, and on nothing else."""

import json
from types import SimpleNamespace

import pytest
import typer

from pipelines import upsert
from pipelines.delivery.fallback_instance_types import TYPE, list_fallbacks
from pipelines.recipe.read_recipe import load_recipe
from pipelines.start import main
from tests.pipelines.upserting import clean_aws
from tests.trainyard.emulator.harness import pipeline, process_step, s3_input, train_step
from tests.trainyard.plan.pictures import HERE
from trainyard.common.errors import PlanError

pytestmark = pytest.mark.long

RECIPE = HERE / "recipe.yaml"
FIRST, SECOND, THIRD = "ml.g5.xlarge", "ml.g6.xlarge", "ml.g4dn.xlarge"
ROLE = "arn:aws:iam::123456789012:role/pipeline"
PARAMETER = {"Name": TYPE, "Type": "String", "DefaultValue": FIRST}
MACHINES = {"InstanceType": {"Get": f"Parameters.{TYPE}"}, "InstanceCount": 1, "VolumeSizeInGB": 1}


def document(script: str) -> dict:
    """Shard, Train on the parameter's type, and a step that reads the recipe's record."""
    record = {"ProcessingInputs": [s3_input("provenance", "s3://bkt/code/record")]}
    return pipeline(
        [
            process_step("Shard", "exit 0"),
            train_step("Train", script, arguments={"ResourceConfig": MACHINES})
            | {"DependsOn": ["Shard"]},
            process_step("Judge", "exit 0", depends_on=("Train",), arguments=record),
        ],
        Parameters=[PARAMETER],
    )


@pytest.fixture
def pipeline_factory(emulator, monkeypatch: pytest.MonkeyPatch):
    """Makes the pipeline whose training runs a script, and whose recipe has two other types."""
    s3, sagemaker = clean_aws(emulator.env, monkeypatch)
    emulator.app.aws.without_capacity = frozenset({FIRST, SECOND})

    def deploy(name: str, script: str = "exit 0", budget: float | None = None):
        recipe = {"train": {"fallback_instance_types": [SECOND, THIRD]}}
        recipe |= {"budget": {"usd_per_run": budget}}
        body = json.dumps(recipe).encode()
        s3.put_object(Bucket="bkt", Key="code/record/recipe.json", Body=body)
        text = json.dumps(document(script))
        sagemaker.create_pipeline(
            PipelineName=name, PipelineDefinition=text, RoleArn=ROLE, ClientRequestToken="t" * 32
        )
        return lambda: types(sagemaker, name)

    return deploy


def types(sagemaker, name: str) -> list[str]:
    """Return the type that each execution's training was to run on, oldest first."""
    found = []
    answer = sagemaker.list_pipeline_executions(PipelineName=name, SortOrder="Ascending")
    for run in answer["PipelineExecutionSummaries"]:
        given = sagemaker.list_pipeline_parameters_for_execution(
            PipelineExecutionArn=run["PipelineExecutionArn"]
        )["PipelineParameters"]
        found.append({p["Name"]: p["Value"] for p in given}.get(TYPE, FIRST))
    return found


def upsert_and_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start as ``upsert --start --wait`` does, of a pipeline that is as its recipe says."""
    compiled = SimpleNamespace(name=name, region="us-east-1", sha256="0" * 64)
    unchanged = SimpleNamespace(change="unchanged", uploaded_bytes=0)
    monkeypatch.setattr(upsert, "_compile_definition", lambda *_: (compiled, None))
    monkeypatch.setattr(upsert, "upsert", lambda *_, **__: unchanged)
    upsert.main(RECIPE, start_it=True, wait=True)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["start", "upsert"])
def test_the_next_type_is_tried_until_one_has_capacity(
    pipeline_factory, capsys, monkeypatch, verb: str
):
    tried = pipeline_factory(verb)
    with pytest.raises(typer.Exit) as ended:
        if verb == "start":
            main(pipeline=verb, wait=True)
        else:
            upsert_and_wait(verb, monkeypatch)
    assert ended.value.exit_code == 0
    assert tried() == [FIRST, SECOND, THIRD]
    said = capsys.readouterr().out
    assert said.count("no capacity: training again on") == 2
    assert "reused  Shard" in said  # what was made before is not made again


@pytest.mark.slow
def test_what_fails_for_another_reason_or_is_beyond_the_budget_is_not_tried(
    pipeline_factory, emulator
):
    tried = pipeline_factory("broken", "exit 3")
    emulator.app.aws.without_capacity = frozenset()
    with pytest.raises(typer.Exit) as ended:
        main(pipeline="broken", wait=True)
    assert ended.value.exit_code == 1 and tried() == [FIRST]
    tried = pipeline_factory("dear", budget=0.001)
    with pytest.raises(PlanError, match="budget:"):
        main(pipeline="dear", parameter=[f"{TYPE}={SECOND}"], wait=True)
    assert tried() == []


def test_a_recipe_may_have_no_other_types_and_a_training_plan():
    assert list_fallbacks(None) == list_fallbacks({}) == list_fallbacks({"train": None}) == ()
    plan = "train.training_plan=arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5-in-may"
    assert load_recipe(RECIPE, [plan]).train.training_plan.endswith("p5-in-may")
