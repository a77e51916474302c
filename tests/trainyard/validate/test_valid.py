"""No false error: our recipes at many settings, and what the SDK's own classes make."""

import json
from pathlib import Path

import pytest

from tests.trainyard.validate.faults import BASES, Edit, errors, load, put
from trainyard.common.errors import DefinitionError
from trainyard.language.step_types import NESTED_KEYS, STEP_TYPES
from trainyard.validate import check_definition, step_properties

pytestmark = pytest.mark.long

FSX = "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: /abcdefgh/trainyard}"
RECIPES = {
    "mpi, retries, no cache": (
        "laptop",
        "train.launcher=mpi",
        "train.processes_per_node=2",
        "retry.max_attempts=3",
        "retry.causes=[throttling, capacity]",
        "cache.enabled=false",
    ),
    "deepspeed, tensorboard": (
        "laptop",
        "train.loop.strategy=deepspeed",
        "train.instance_type=ml.g5.xlarge",
        "train.loop.tensorboard=true",
        "gate.below_baseline=null",
    ),
    "a file system": ("prod", "train.input_mode=FSxLustre", FSX, "train.spot=false"),
    "no spot, warm pool": ("prod", "train.spot=false", "train.keep_alive_minutes=30"),
}
"""As they are, the recipes are checked with the application's rules, too."""


@pytest.mark.parametrize("base", BASES)
def test_the_sdks_definitions_are_valid(base: str):
    assert errors(json.dumps(load(base))) == []


@pytest.mark.parametrize(
    "edit",
    [
        put("transform/PipelineExperimentConfig", {"ExperimentName": "mine"}),
        put("transform/PipelineExperimentConfig", {"TrialName": "mine"}),
        # AWS's JSON schema, botocore's StepName and the SDK's names of @step functions have them
        put("transform/Steps/0/Name", "score_all"),
        put("for_each/Parameters/0/DefaultValue", "[1, 2]"),
        put("for_each/0/IterableItems", [1, "b", True]),
    ],
)
def test_what_the_service_takes_is_valid(edit: Edit):
    assert errors(json.dumps(edit.make_definition())) == []


def test_they_have_every_step_type():
    def types(steps) -> set[str]:
        inner = [s for step in steps for key in NESTED_KEYS for s in step["Arguments"].get(key, ())]
        return {step["Type"] for step in steps} | (types(inner) if inner else set())

    assert set().union(*(types(load(base)["Steps"]) for base in BASES)) == set(STEP_TYPES)


def compile_recipe(name: str, *overrides: str) -> str:
    from pipelines.definition import build
    from pipelines.recipe.environments import resolve_account
    from pipelines.recipe.read_recipe import load_recipe as read

    recipe = read(Path(f"recipes/{name}.yaml"), overrides)
    return build(recipe, resolve_account(recipe.aws), commit="0" * 40, source=None).body


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_our_recipes_are_valid(recipe: tuple[str, ...]):
    assert errors(compile_recipe(*recipe)) == []


@pytest.mark.slow
@pytest.mark.parametrize("base", ["training", "for_each"])
def test_the_sdk_still_emits_them(base: str):
    from tests.trainyard.validate.make_definitions import build

    assert json.loads(build(base)) == load(base)


@pytest.mark.slow
def test_upsert_uploads_nothing_of_a_definition_that_is_wrong(monkeypatch: pytest.MonkeyPatch):
    from pipelines.compile.compilation import CompiledPipeline
    from pipelines.upsert import upsert

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # a call would fail otherwise
    definition = CompiledPipeline(
        name="wrong",
        description="",
        region="us-east-1",
        role="arn:aws:iam::111122223333:role/x",
        body=json.dumps(
            put("training/0/AlgorithmSpecification/TrainingInputMode", "Fil").make_definition()
        ),
        assets=(),
        max_parallel_steps=1,
        tags={},
        kms_key=None,
    )
    with pytest.raises(DefinitionError, match=r"Steps\[0\].*TrainingInputMode: 'Fil'.*use File"):
        upsert(definition)


def test_a_botocore_older_than_a_step_type_is_said_and_refuses_nothing(monkeypatch):
    """Botocore 1.40 has no CreateJob: validate ended with a KeyError."""
    newer = ("CreateJobRequest", "DescribeJobResponse")
    known = {
        k: v for k, v in step_properties.load_service_shapes("sagemaker").items() if k not in newer
    }
    monkeypatch.setattr(step_properties, "load_service_shapes", lambda service: known)
    document = load("job")
    [job] = [step for step in document["Steps"] if step["Type"] == "Job"]
    reference = {"Get": f"Steps.{job['Name']}.JobArn"}
    fail = {"Name": "f", "Type": "Fail", "Arguments": {"ErrorMessage": reference}}
    found = check_definition(json.dumps({**document, "Steps": [*document["Steps"], fail]}))
    assert not [each for each in found if each.severity == "error"]
    [said] = [each for each in found if each.rule == "not-checked"]
    assert "does not know CreateJobRequest" in said.problem
