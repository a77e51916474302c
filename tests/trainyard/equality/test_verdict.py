"""Two definitions are equal, equal but for what does not matter, or different, and where."""

import copy
import json
import random
from pathlib import Path

import pytest

from tests.conftest import call_module
from tests.trainyard.emulator.harness import pipeline, process_step, s3_input
from tests.trainyard.emulator.sagemaker.tuning.harness import config, request, step, tuning_cloud
from tests.trainyard.equality.edits import (
    DIFFERENCES,
    REWRITES,
    decide_edited_equality,
    join,
    pipelines,
    write_input_files,
)
from trainyard.equality.normal_form import remove_defaults
from trainyard.equality.observed_run import Setting
from trainyard.equality.static_comparison import EqualityResult, decide_equality

pytestmark = pytest.mark.long
ONCE = pipeline([process_step("Make", "true")])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_input_files(tmp_path_factory.mktemp("s3"))


def static(first: dict, second: dict, **given: str) -> EqualityResult:
    return decide_equality(first, second, Setting({}, given), static=True)


@pytest.mark.parametrize("name", [*DIFFERENCES, *REWRITES])
def test_what_matters_is_found_and_what_does_not_is_not(name: str, files: dict[str, Path]):
    edit = (DIFFERENCES | REWRITES)[name]
    pairs = [(one, copy.deepcopy(one)) for one in pipelines()]
    edited = [(one, other) for one, other in pairs if edit(other, random.Random(1))]
    assert all(json.dumps(one) != json.dumps(other) for one, other in edited)
    answer = decide_equality(*edited[-1], Setting(files), static=True)
    assert (answer.verdict == "different") == (name in DIFFERENCES), answer.cause


@pytest.mark.parametrize("seed", range(10))
def test_edits_are_judged_after_each_other_too(seed: int, files: dict[str, Path]):
    difference, names = decide_edited_equality(seed, "differences", files, static=True)
    assert difference.verdict == "different", names
    rewrite, names = decide_edited_equality(seed, "rewrites", files, static=True)
    assert rewrite.verdict != "different", (names, rewrite.cause)


def test_order_counts_where_a_reference_counts_items():
    make = process_step("Make", "true", outputs={"a": "s3://b/a", "b": "s3://b/b"})
    for output in make["Arguments"]["ProcessingOutputConfig"]["Outputs"]:
        place = output["S3Output"]
        place["S3Uri"] = join("/", place["S3Uri"], {"Get": "Execution.PipelineExecutionId"})
    second = {"Get": "Steps.Make.ProcessingOutputConfig.Outputs[1].S3Output.S3Uri"}
    take = process_step("Take", "true", arguments={"ProcessingInputs": [s3_input("i", second)]})
    one = pipeline([make, take])
    other = copy.deepcopy(one)
    other["Steps"][0]["Arguments"]["ProcessingOutputConfig"]["Outputs"].reverse()
    assert static(one, other).verdict == "different"


def test_a_folder_inside_another_makes_the_order_of_inputs_matter():
    inputs = [s3_input("a", "s3://b/a"), s3_input("a/b", "s3://b/b")]
    first = pipeline([process_step("Make", "true", arguments={"ProcessingInputs": inputs})])
    second = pipeline([process_step("Make", "true", arguments={"ProcessingInputs": inputs[::-1]})])
    assert static(first, second).verdict == "different"


def make_environment_pipeline(**environment: object) -> dict:
    return pipeline([process_step("Make", "true", arguments={"Environment": environment})])


def test_a_float_without_a_fraction_is_no_known_text():
    first, second = (
        make_environment_pipeline(P=join("", {"Get": "Parameters.P"})),
        make_environment_pipeline(P="1"),
    )
    for kind, default, verdict in (("Float", 1, "different"), ("Integer", 1, "equal but for")):
        first["Parameters"] = [{"Name": "P", "Type": kind, "DefaultValue": default}]
        assert static(first, second).verdict == verdict


def test_a_secret_is_not_shown():
    said = json.dumps(
        static(
            make_environment_pipeline(API_TOKEN="hunter2"),
            make_environment_pipeline(API_TOKEN="hunter3"),
        ).as_json()
    )
    assert "API_TOKEN" in said and "hunter" not in said


@pytest.mark.slow
def test_rewrites_are_equal_when_they_are_executed(files: dict[str, Path]):
    answer, names = decide_edited_equality(0, "rewrites", files, static=False)
    assert answer.cause is None, names
    assert answer.evidence.startswith("executed here, Succeeded")


@pytest.mark.slow
def test_an_execution_finds_what_the_definition_does_not_say():
    draw = "echo $RANDOM$RANDOM > /opt/ml/processing/out/r; echo 1 > /opt/ml/processing/out/s"
    drawn = pipeline([process_step("Draw", draw, outputs={"out": "s3://bkt/out"})])
    found = decide_equality(drawn, copy.deepcopy(drawn), Setting({}))
    assert found.cause and found.cause.step == "Draw" and "--twice" in found.cause.note
    assert found.cause.what == "output s3://bkt/out/r"
    known = decide_equality(drawn, copy.deepcopy(drawn), Setting({}), twice=True)
    assert known.cause is None and known.verdict == "equal but for"
    assert "output s3://bkt/out/r" in known.but_for[0]


def make_stamped_pipeline(*seconds: int, base: str = "x/eval") -> dict:
    """Return steps whose outputs lie where SDK 2 puts them, and one that reads the first."""
    places = [f"s3://b/{base}--2026-11-24-20-33-{second:02}-122/output/o" for second in seconds]
    steps = [
        process_step(f"Make{n}", "true", outputs={"o": place}) for n, place in enumerate(places)
    ]
    reads = {"ProcessingInputs": [s3_input("i", f"{places[0]}/part")]}
    return pipeline([*steps, process_step("Take", "true", arguments=reads)])


def test_the_time_in_a_generated_place_of_an_output_makes_no_difference():
    """AWS's notebook sm-pipelines_hyperparameter_tuning has one, after each compilation another."""
    for other in (
        make_stamped_pipeline(17),
        make_stamped_pipeline(17, base="x-eval"),
    ):  # with a hyphen under SDK 3
        assert static(make_stamped_pipeline(7), other).but_for == (
            "generated locations of outputs of Make0",
        )
    assert static(make_stamped_pipeline(7), make_stamped_pipeline(17, base="y-eval")).cause
    assert (
        static(make_stamped_pipeline(7), pipeline(make_stamped_pipeline(7)["Steps"][:1])).verdict
        == "different"
    )
    assert (
        static(make_stamped_pipeline(7, 8), make_stamped_pipeline(7, 9)).verdict == "different"
    )  # they tell outputs apart
    assert static(make_stamped_pipeline(7, 8), make_stamped_pipeline(7, 7)).verdict == "different"
    one = pipeline(
        make_stamped_pipeline(7)["Steps"][1:]
    )  # nothing of this pipeline writes what is read
    assert static(one, pipeline(make_stamped_pipeline(17)["Steps"][1:])).verdict == "different"


def test_a_tuning_job_has_two_names_for_its_machines():
    machines = {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 30}
    old = {"HyperParameterTuningResourceConfig": machines, "OutputDataConfig": {}}
    new = {"ResourceConfig": machines, "OutputDataConfig": {"CompressionType": "GZIP"}}
    ranges = {"HyperParameterTuningJobConfig": {"ParameterRanges": {"IntegerParameterRanges": []}}}
    none = {"HyperParameterTuningJobConfig": {"ParameterRanges": {}}}
    assert remove_defaults({"TrainingJobDefinition": old, **ranges}) == remove_defaults(
        {"TrainingJobDefinition": new, **none}
    )
    several = machines | {"AllocationStrategy": "Prioritized"}
    more = {"TrainingJobDefinitions": [{"HyperParameterTuningResourceConfig": several}]}
    assert remove_defaults(more) == more


@pytest.mark.slow
def test_trainings_of_a_tuning_job_have_drawn_names(tmp_path: Path):
    values = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["1"]}]}
    limits = {"MaxParallelTrainingJobs": 1}
    grid = config("Grid", None, ParameterRanges=values, ResourceLimits=limits)
    tunes = pipeline([step("Tune", request(grid))])
    with tuning_cloud(tmp_path / "state", tmp_path / "image"):
        setting = Setting({}, python=tmp_path / "image/python3")
        answer = decide_equality(tunes, copy.deepcopy(tunes), setting)
    assert answer.verdict == "equal", answer
    assert answer.evidence.startswith("executed here, Succeeded")


@pytest.mark.slow
def test_what_cannot_be_run_here_is_compared_as_it_is_written():
    step = {"Name": "Spark", "Type": "EMR", "Arguments": {"ClusterId": "j-1", "StepConfig": {
        "Name": "x", "HadoopJarStep": {"Jar": "s3://b/x.jar"}}}}  # fmt: skip
    answer = decide_equality(pipeline([step]), pipeline([step]), Setting({}))
    assert answer.verdict == "equal" and "not executed: " in answer.evidence
    assert "Spark" in answer.evidence and "EMR" in answer.evidence


def test_the_verb_says_it_with_its_status(tmp_path: Path):
    other = copy.deepcopy(ONCE)
    other["Steps"][0]["DisplayName"] = "It makes"
    for name, document in (("a", ONCE), ("b", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    other["Steps"][0]["Arguments"]["AppSpecification"]["ContainerArguments"] = ["false"]
    (tmp_path / "c.json").write_text(json.dumps(other))
    paths = {name: str(tmp_path / f"{name}.json") for name in "abc"}
    verb = "trainyard.commands.equal"
    same = call_module(verb, paths["a"], paths["b"], "--static")
    assert same.returncode == 0, same.stderr
    assert same.stdout.splitlines()[:2] == ["equal but for", "  DisplayName of Make"]
    different = call_module(verb, paths["a"], paths["c"])
    assert different.returncode == 2
    said = "different: Make ContainerArguments\n  first   true\n  second  false\n"
    assert different.stdout.startswith(said)
    told = json.loads(call_module(verb, paths["a"], paths["c"], "--json").stdout)
    assert told["verdict"] == "different"
    wrong = call_module(verb, paths["a"], paths["b"], "--parameter", "Rate=1")
    assert wrong.returncode == 1 and "neither definition declares it" in wrong.stderr


def make_training_pipeline(**more: object) -> dict:
    step = pipelines()[0]["Steps"][1]
    step["Arguments"] |= more
    return pipeline([pipelines()[0]["Steps"][0], step], Parameters=pipelines()[0]["Parameters"])


HOOK = {"DebugHookConfig": {"S3OutputPath": "s3://b/x", "CollectionConfigurations": []}}


def test_what_only_watches_a_training_is_listed_and_a_rule_that_reads_it_is_work():
    assert static(make_training_pipeline(), make_training_pipeline(**HOOK)).but_for == (
        "DebugHookConfig of Train",
    )
    rules = {"DebugRuleConfigurations": [{"RuleConfigurationName": "r",
                                          "RuleEvaluatorImage": "i"}]}  # fmt: skip
    assert (
        static(make_training_pipeline(**rules), make_training_pipeline(**HOOK, **rules)).verdict
        == "different"
    )


def test_a_channel_has_the_input_mode_of_its_training_and_a_model_is_compressed():
    plain, said = make_training_pipeline(), make_training_pipeline()
    training = said["Steps"][1]["Arguments"]
    training["OutputDataConfig"]["CompressionType"] = "GZIP"
    training["InputDataConfig"][0]["InputMode"] = "File"
    assert static(plain, said | {"MlflowConfig": None}).verdict == "equal"
    training["InputDataConfig"][0]["InputMode"] = "FastFile"
    assert static(plain, said).verdict == "different"
