"""Plans against a deployed pipeline: drift, changed files, plan.json, and what is only read."""

import json
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
import typer

from pipelines import plan as verb
from pipelines.compile.compilation import Asset
from pipelines.delivery import saved_plan, upsert_lock
from pipelines.delivery.recipe_plan import describe_changed_files, plan_pipeline
from pipelines.upsert import main as upsert_main
from pipelines.upsert import upsert
from tests.pipelines.upserting import NAME, clean_aws, definition
from tests.trainyard.plan.pictures import HERE
from trainyard.common.errors import PlanError
from trainyard.plan import deployed_pipeline
from trainyard.plan.plan_display import format_headline, render_plan

pytestmark = pytest.mark.long

READING = ("Describe", "List", "Get", "Head")
RECIPE = HERE / "recipe.yaml"


@pytest.fixture(autouse=True)
def aws(emulator, monkeypatch: pytest.MonkeyPatch):
    return clean_aws(emulator.env, monkeypatch)


def make_edit_request(value: str) -> dict:
    """A request with which somebody changes the pipeline without us."""
    return definition(value).state.build_request()


def render_plan_text(plan) -> str:
    return "\n".join(line.plain for line in render_plan(plan))


def test_a_new_pipeline_in_a_bucket_that_does_not_exist(aws):
    asset = replace(definition("1").assets[0], bucket="nobodys")
    plan = plan_pipeline(replace(definition("1"), assets=(asset,)))
    assert format_headline(plan) == "is new, with 2 steps"
    assert plan.drift.kind == "none" and plan.current is None


def test_a_plan_only_reads_and_names_the_files_that_changed(aws):
    upsert(definition("1"))
    made: list[str] = []
    events = boto3.DEFAULT_SESSION._session
    events.register("before-call.*", lambda model, **_: made.append(model.name))
    plan = plan_pipeline(definition("2"))
    assert plan_pipeline(definition("1")).diff == type(plan.diff)()
    assert made and all(name.startswith(READING) for name in made), made
    changes = [change for step in plan.diff.steps for change in step.changes]
    assert {change.note for change in changes} == {"", "1 file: ~ a.txt"}
    assert "1 file: ~ a.txt" in render_plan_text(plan)


@pytest.mark.parametrize(
    ("there", "files", "kms", "said"),
    [
        ({"a": b"1"}, {"a": b"2"}, None, "1 file: ~ a"),
        ({"a": b"1", "b": b"1"}, {"a": b"1", "c": b"1"}, None, "2 files: - b, + c"),
        ({name: b"1" for name in "abcde"}, {name: b"2" for name in "abcde"}, None,
         "5 files: ~ a, ~ b, ~ c, 2 more"),
        ({"a": b"1", "b": b"1"}, {"a": b"12", "b": b"2"}, "key",
         "1 file: ~ a, compared by size only: ETags under KMS are not MD5"),
    ],
)  # fmt: skip
def test_changed_files(aws, there: dict, files: dict, kms: str | None, said: str):
    s3, _ = aws
    old = Asset("bkt", "p", there)
    for name, body in there.items():
        s3.put_object(Bucket="bkt", Key=f"{old.key}/{name}", Body=body)
    found = s3.list_objects_v2(Bucket="bkt", Prefix=old.key)["Contents"]
    listed = {i["Key"].rpartition("/")[2]: (i["Size"], i["ETag"].strip('"')) for i in found}
    assert describe_changed_files(listed, files, kms) == said


def test_what_was_edited_elsewhere_is_drift_with_its_difference(aws):
    _, sagemaker = aws
    upsert(definition("1"))
    assert plan_pipeline(definition("2")).drift.kind == "none"
    sagemaker.update_pipeline(**make_edit_request("9"))
    plan = plan_pipeline(definition("2"))
    assert plan.drift.kind == "edited"
    changes = [change for step in plan.drift.diff.steps for change in step.changes]
    assert {(c.old, c.new) for c in changes if c.path == "Environment.VALUE"} == {("1", "9")}
    assert "edited the pipeline at" in render_plan_text(
        plan
    ) and "Environment.VALUE" in render_plan_text(plan)
    upsert(definition("2"))
    assert plan_pipeline(definition("3")).drift.kind == "none"
    arn = sagemaker.describe_pipeline(PipelineName=NAME)["PipelineArn"]
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "theirs", "Value": "1"}])
    plan = plan_pipeline(definition("2"))
    assert plan.drift.kind == "edited"
    assert [(c.sign, c.path) for c in plan.diff.pipeline] == [("-", "Tags[theirs]")]


def test_a_pipeline_without_any_record_is_of_unknown_origin(aws):
    _, sagemaker = aws
    sagemaker.create_pipeline(**make_edit_request("1"))
    plan = plan_pipeline(definition("2"))
    assert plan.drift.kind == "unknown"
    assert "drift: unknown, no upsert of this pipeline was recorded yet" in render_plan_text(plan)


def test_an_upsert_that_died_or_somebody_who_went_back_is_no_drift(aws):
    s3, sagemaker = aws
    upsert(definition("1"))
    place = upsert_lock.locate_records(definition("1"))
    upsert_lock.write_record(s3, place, definition("2").state)
    assert plan_pipeline(definition("3")).drift.kind == "none", "killed after its record"
    held = upsert_lock.Lock(s3, place, NAME, 60)
    held.take()
    sagemaker.update_pipeline(**make_edit_request("9"))  # the tags were to follow
    plan = plan_pipeline(definition("2"))
    assert plan.drift.kind == "interrupted" and upsert_lock.identify_process() == plan.drift.by
    held.release()
    assert plan_pipeline(definition("2")).drift.kind == "edited"


@pytest.fixture
def plan_file(aws, tmp_path: Path) -> Path:
    """The plan from definition 1, deployed, to definition 2."""
    upsert(definition("1"))
    path = tmp_path / "plan.json"
    saved_plan.write_plan(
        path, plan_pipeline(definition("2")), definition("2"), Path("recipe.yaml"), ["a.b=1"]
    )
    return path


def test_a_plan_is_read_as_it_was_written_and_applied_once(plan_file: Path):
    plan = saved_plan.read_plan(plan_file)
    assert (plan.recipe, plan.overrides) == (Path("recipe.yaml"), ("a.b=1",))
    assert plan.target_state == definition("2").state
    assert plan.previous_state == definition("1").state
    assert [path.name for path in plan_file.parent.iterdir()] == ["plan.json"]
    plan.refuse_other_recipe(definition("2"))
    assert upsert(definition("2"), plan=plan).change == "updated"
    assert upsert(definition("2"), plan=plan).change == "unchanged"


def test_a_pipeline_that_moved_refuses_the_plan_and_says_what_moved(aws, plan_file: Path):
    _, sagemaker = aws
    sagemaker.update_pipeline(**make_edit_request("9"))
    before = deployed_pipeline.describe_deployed_pipeline(sagemaker, NAME)
    message = (
        r"has changed since .*plan.json was created at .*PipelineDescription description 1 → .* 9"
    )
    with pytest.raises(PlanError, match=message):
        upsert(definition("2"), plan=saved_plan.read_plan(plan_file))
    assert deployed_pipeline.describe_deployed_pipeline(sagemaker, NAME) == before
    sagemaker.delete_pipeline(PipelineName=NAME)
    with pytest.raises(PlanError, match="was deleted after"):
        upsert(definition("2"), plan=saved_plan.read_plan(plan_file))


def test_a_plan_of_a_new_pipeline_is_refused_when_somebody_made_one(aws, tmp_path: Path):
    path = tmp_path / "plan.json"
    saved_plan.write_plan(
        path, plan_pipeline(definition("1")), definition("1"), Path("recipe.yaml"), []
    )
    upsert(definition("3"))
    with pytest.raises(PlanError, match="it was created"):
        upsert(definition("1"), plan=saved_plan.read_plan(path))


def test_another_checkout_recipe_or_environment_refuses_the_plan(aws, plan_file: Path):
    plan = saved_plan.read_plan(plan_file)
    assert plan.environment is None
    other = replace(definition("2").assets[0], files={"a.txt": b"changed"})
    prod = replace(definition("2"), environment="prod")
    for wrong, said in (
        (definition("3"), r"does not compile to what was planned.*Environment.VALUE"),
        (replace(definition("2"), assets=(other,)), "changed since then: the code"),
        (replace(definition("2"), name="big"), "a plan of pipeline small, and recipe.yaml defines"),
    ):
        with pytest.raises(PlanError, match=said):
            plan.refuse_other_recipe(wrong)
    saved_plan.write_plan(plan_file, plan_pipeline(prod), prod, Path("recipe.yaml"), [])
    plan = saved_plan.read_plan(plan_file)
    plan.refuse_other_recipe(prod)
    with pytest.raises(PlanError, match="is a plan for environment prod, .* to environment dev"):
        plan.refuse_other_recipe(replace(prod, environment="dev"))
    with pytest.raises(PlanError, match="is a plan for environment prod, .* to no environment"):
        plan.refuse_other_recipe(definition("2"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "is not a complete plan"),
        (lambda text: "", "is not a complete plan"),
        (lambda text: text.replace("role/pipeline", "role/admin", 1), "truncated or edited"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "is not a plan of format 1"),
        (lambda text: "[]", "is not a plan of format 1"),
        (lambda text: json.dumps({"format": 1, "plan": {}}), "truncated or edited"),
    ],
)
def test_a_damaged_plan_is_refused(plan_file: Path, damage, message: str):
    plan_file.write_text(damage(plan_file.read_text()))
    with pytest.raises(PlanError, match=message):
        saved_plan.read_plan(plan_file)
    with pytest.raises(PlanError, match="no such plan"):
        saved_plan.read_plan(plan_file.with_name("none.json"))


def run(*overrides: str, **more) -> int:
    """Exit status of ``python -m pipelines.plan``."""
    with pytest.raises(typer.Exit) as ended:
        verb.main(RECIPE, list(overrides), **more)
    return ended.value.exit_code


def test_the_verb_plans_and_upsert_applies_exactly_that(tmp_path: Path, capsys):
    out = tmp_path / "plan.json"
    rate = "train.loop.learning_rate=0.001"
    assert run(rate, out=out) == 2
    upsert_main(plan=out)
    assert "trainyard-dev: created" in capsys.readouterr().out
    assert run(rate, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["diff"] == {"pipeline": [], "parameters": [], "steps": []}
    assert told["wanted"]["fingerprint"] == told["deployed"]["fingerprint"]
    assert [step["step"] for step in told["steps"]][:2] == ["Shard", "Train"]
    assert run("train.loop.learning_rate=0.002") == 2
    assert "~ HyperParameters.learning_rate   0.001 → 0.002" in capsys.readouterr().out


def test_a_plan_over_budget_is_shown_refused_and_not_written(tmp_path: Path, capsys):
    out = tmp_path / "plan.json"
    with pytest.raises(PlanError, match=r"budget: a run may cost \$\d+"):
        verb.main(RECIPE, ["budget.usd_per_run=1"], out=out)
    assert "the recipe allows $1.00" in capsys.readouterr().out
    assert not out.exists()
