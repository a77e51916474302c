"""The definition: offline, deterministic, and what the service takes."""

import functools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import botocore.session
import pytest
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from pipelines.compile.package_lock import parse_lock
from pipelines.compile.training_inputs import build_loop_parts
from pipelines.definition import CHECKOUT, build, split_argument
from pipelines.recipe.environments import resolve_account
from pipelines.recipe.read_recipe import load_recipe
from training.workloads.tabular import config
from trainyard.common.errors import RecipeError

pytestmark = pytest.mark.long

RECIPES = ["recipes/laptop.yaml", "recipes/prod.yaml"]
REQUESTS = {
    "Processing": ("CreateProcessingJob", {"ProcessingJobName": "x"}),
    "Training": ("CreateTrainingJob", {"TrainingJobName": "x"}),
    "RegisterModel": ("CreateModelPackage", {}),
}


@functools.cache
def compile_recipe(path: str, *overrides: str):
    recipe = load_recipe(Path(path), overrides)
    return build(
        recipe, resolve_account(recipe.aws), commit="0" * 40, source=None, home=Path(path).parent
    )


def document(path: str, *overrides: str) -> dict:
    return json.loads(compile_recipe(path, *overrides).body)


def find_steps(path: str, *overrides: str) -> dict[str, dict]:
    """Every step of a recipe's definition, by name."""
    return steps(document(path, *overrides))


def steps(body: dict) -> dict[str, dict]:
    """Return every step by name, including those inside the condition's branches."""
    every = {}
    for step in body["Steps"]:
        every[step["Name"]] = step
        for branch in ("IfSteps", "ElseSteps"):
            every |= {inner["Name"]: inner for inner in step["Arguments"].get(branch, ())}
    return every


PRINTED = """
import sys
from pipelines.definition import main
from trainyard.terminal import run

for recipe in sys.argv[1:]:
    try:
        run(main, arguments=["--recipe", recipe])
    except SystemExit as end:
        if end.code:
            raise
    print("END")
"""
"""Program that prints the definitions of several recipes, as ``pipelines.definition`` does."""


@pytest.mark.slow
def test_fresh_processes_print_the_same_bytes_with_no_aws_in_reach(run_python):
    """The result does not depend on hashes, the clock, or the recipes compiled before."""
    first, second = (
        run_python(
            "-c",
            PRINTED,
            *recipes,
            env={
                "PYTHONHASHSEED": seed,
                "TZ": zone,
                "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # the discard port: a call would fail
                "AWS_MAX_ATTEMPTS": "1",
            },
        )
        for seed, zone, recipes in (("1", "UTC", RECIPES), ("2", "Asia/Tokyo", RECIPES[::-1]))
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    bodies = first.stdout.split("END\n")[:-1]
    assert bodies == second.stdout.split("END\n")[-2::-1]
    assert [json.loads(body)["Version"] for body in bodies] == ["2020-12-01"] * len(RECIPES)
    assert first.stderr == second.stderr == ""


def test_a_model_may_be_uploaded_and_registered_file_by_file():
    steps = find_steps("recipes/laptop.yaml", "train.model_compression=none")
    assert steps["Train"]["Arguments"]["OutputDataConfig"]["CompressionType"] == "NONE"
    [container] = steps["Register"]["Arguments"]["InferenceSpecification"]["Containers"]
    assert "ModelDataUrl" not in container
    assert container["ModelDataSource"]["S3DataSource"] == {
        "S3Uri": {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"},
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }


@pytest.mark.parametrize("overrides", [(), ("train.model_compression=none",)])
@pytest.mark.parametrize("recipe", RECIPES)
def test_arguments_have_the_services_shape_and_no_time(recipe: str, overrides: tuple[str, ...]):
    """What is in AWS's cache key holds no execution: an execution's id there kills it."""
    body = compile_recipe(recipe, *overrides).body
    assert not re.search(r"20[2-9]\d-\d\d-\d\d-\d\d-\d\d", body)  # the SDK's timestamped job names
    model = botocore.session.get_session().get_service_model("sagemaker")
    for step in steps(json.loads(body)).values():
        if step["Type"] not in REQUESTS:
            continue
        operation, extra = REQUESTS[step["Type"]]
        shape = model.operation_model(operation).input_shape
        report = ParamValidator().validate(
            {**resolve_references(step["Arguments"]), **extra}, shape
        )
        assert not report.has_errors(), f"{step['Name']}: {report.generate_report()}"
        keyed = [step["Arguments"].get(k) for k in ("CheckpointConfig", "InputDataConfig",
                 "Environment", "ProcessingInputs", "AppSpecification")]  # fmt: skip
        assert "PipelineExecutionId" not in json.dumps(keyed)
        for value in step["Arguments"].get("HyperParameters", {}).values():
            assert isinstance(value, str) or "Std:Join" in value  # never a bare Get (#4867)


def resolve_references(value):
    """Arguments with every reference replaced by a value of the type that it will have."""
    if isinstance(value, dict):
        if set(value) == {"Get"}:
            return 1 if value["Get"].endswith("Count") else "text"
        if set(value) & {"Std:Join", "Std:JsonGet"}:
            return "text"
        return {key: resolve_references(inner) for key, inner in value.items()}
    return [resolve_references(inner) for inner in value] if isinstance(value, list) else value


def test_the_dag():
    steps = find_steps("recipes/laptop.yaml")
    assert {name: step["Type"] for name, step in steps.items()} == {
        "Shard": "Processing", "Train": "Training", "Evaluate": "Processing", "Gate": "Processing",
        "Verdict": "Condition", "Register": "RegisterModel", "Rejected": "Fail"}  # fmt: skip
    raw = steps["Shard"]["Arguments"]["ProcessingInputs"][0]["S3Input"]
    assert raw["S3DataDistributionType"] == "ShardedByS3Key"
    assert "TensorBoardOutputConfig" not in steps["Train"]["Arguments"]  # nobody asked for it
    inputs = {one["InputName"] for one in steps["Evaluate"]["Arguments"]["ProcessingInputs"]}
    assert {"train", "summary"} & inputs == {"summary"}
    metadata = steps["Register"]["Arguments"]["CustomerMetadataProperties"]
    assert metadata["commit"] == make_record_reference("commit")
    assert "dataset_fingerprint" in metadata


def make_record_reference(name: str) -> dict:
    """A value that Register reads from the gate's record.json."""
    file = {"Get": "Steps.Gate.PropertyFiles.Record"}
    return {
        "Std:Join": {"On": "", "Values": [{"Std:JsonGet": {"PropertyFile": file, "Path": name}}]}
    }


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {"key": "key", "unique": None, "shard_mb": 64.0, "max_bad_share": 0.001}),
        (["shard.key=null", "shard.unique=[]", "shard.processes=3"],
         {"key": None, "unique": [], "processes": 3}),
        (["shard.unique=[a, b]", "shard.shard_mb=0.5", "shard.max_bad_share=0"],
         {"unique": ["a", "b"], "shard_mb": 0.5, "max_bad_share": 0}),
    ],
)  # fmt: skip
def test_the_shard_job_understands_what_the_step_tells_it(overrides, expected):
    from steps.shard.job import parse_arguments

    shard = find_steps("recipes/laptop.yaml", *overrides)["Shard"]
    options = vars(parse_arguments(shard["Arguments"]["AppSpecification"]["ContainerArguments"]))
    assert {name: options[name] for name in expected} == expected
    outputs = shard["Arguments"]["ProcessingOutputConfig"]["Outputs"]
    assert [output["OutputName"] for output in outputs] == [
        "train", "validation", "test", "quarantine", "summary"
    ]  # fmt: skip


THRESHOLDS = "gate={max_bits_per_byte: 2.8}"
COMPARING = ("gate={max_bits_per_byte: 2.8, below_baseline: bigram}",
             "gate.non_inferiority={bits_per_byte: 0.01, loss: 0.02}",
             "gate.superiority={next_token_accuracy: 0}", "gate.max_leaked_examples=0",
             "gate.max_artifact_mb=12.5", "gate.range={next_token_accuracy: 1}",
             "gate.clip={loss: 0.5}", "gate.cold_start=reject",
             "gate.visible_checks=true")  # fmt: skip


def test_the_gate_job_understands_what_the_step_tells_it():
    from conditions.gate_arguments import build_demands
    from steps.gate.job import parse_arguments

    definition = compile_recipe("recipes/laptop.yaml", *COMPARING)
    gate = steps(json.loads(definition.body))["Gate"]["Arguments"]
    words = resolve_references(gate["AppSpecification"]["ContainerArguments"])
    assert len(words) <= 100 and max(map(len, words)) <= 256  # what the service takes
    words[words.index("--look") + 1] = "3"
    options = parse_arguments(words)
    assert (options.max_leaked_examples, options.max_artifact_mb) == (0, 12.5)
    assert build_demands(options)["range"] == {"next_token_accuracy": 1}
    assert build_demands(options)["clip"] == {"loss": 0.5}
    demanded = build_demands(options)
    assert demanded["non_inferiority"] == {"bits_per_byte": 0.01, "loss": 0.02}
    assert demanded["superiority"] == {"next_token_accuracy": 0}
    directions = {"bits_per_byte": "lower", "loss": "lower", "next_token_accuracy": "higher"}
    assert (demanded.directions, demanded["cold_start"]) == (directions, "reject")
    assert demanded.look_number == 3
    inputs = [source["InputName"] for source in gate["ProcessingInputs"]]
    assert inputs == ["evaluation", "scores", "provenance", "code"]
    [code] = [asset.files for asset in definition.assets if "steps/gate/job.py" in asset.files]
    needed = [entry.name for entry in parse_lock(code["requirements.txt"].decode(), "")]
    assert needed == ["numpy", "pyarrow", "scipy"]


def test_a_gate_of_thresholds_asks_for_no_scores_and_installs_nothing():
    definition = compile_recipe("recipes/laptop.yaml", THRESHOLDS)
    gate = steps(json.loads(definition.body))["Gate"]["Arguments"]
    inputs = [source["InputName"] for source in gate["ProcessingInputs"]]
    assert inputs == ["evaluation", "provenance", "code"]
    [code] = [asset.files for asset in definition.assets if "steps/gate/job.py" in asset.files]
    assert "requirements.txt" not in code


def test_the_verdict_shows_each_kind_of_check_where_it_is_asked_for_and_says_where_to_read_more():
    steps = find_steps("recipes/laptop.yaml", *COMPARING)
    conditions = steps["Verdict"]["Arguments"]["Conditions"]
    assert [condition["LeftValue"]["Std:JsonGet"]["Path"] for condition in conditions] == [
        "verdict", "kinds.threshold", "kinds.baseline", "kinds.artifact_size", "kinds.leakage",
        "kinds.sample_size", "kinds.non_inferiority", "kinds.superiority",
    ]  # fmt: skip
    message = steps["Rejected"]["Arguments"]["ErrorMessage"]["Std:Join"]["Values"]
    assert message[1] == {"Get": "Steps.Gate.ProcessingOutputConfig.Outputs['gate'].S3Output.S3Uri"}
    assert message[2] == "/gate.json): "


def test_torchrun_is_told_how_often_to_restart_and_a_recipe_may_say_otherwise():
    def environment(*overrides: str) -> dict[str, str]:
        return find_steps("recipes/laptop.yaml", *overrides)["Train"]["Arguments"]["Environment"]

    assert environment()["PET_MAX_RESTARTS"] == "3"
    assert environment("train.max_restarts=0")["PET_MAX_RESTARTS"] == "0"
    own = environment("train.environment={PET_SHUTDOWN_TIMEOUT: '20'}")
    assert own["PET_SHUTDOWN_TIMEOUT"] == "20" and own["PET_MAX_RESTARTS"] == "3"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A checkout that may be edited."""
    folder = tmp_path_factory.mktemp("copy") / "checkout"
    ignored = shutil.ignore_patterns(".*", "tests", "docs", "benchmarks", "examples")
    shutil.copytree(CHECKOUT, folder, ignore=ignored)
    return folder


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("training/loop.py", {"Train", "Evaluate"}),
        ("training/workloads/language_model/scores.py", {"Shard", "Train", "Evaluate"}),
        ("steps/evaluate/job.py", {"Evaluate"}),
        ("steps/train/step.py", set()),
    ],
)
def test_a_change_changes_the_code_of_the_steps_that_carry_it(copy, monkeypatch, file, changed):
    before, text = find_steps("recipes/laptop.yaml"), (copy / file).read_text()
    (copy / file).write_text(text + "\n# a comment\n")
    monkeypatch.setattr("pipelines.definition.CHECKOUT", copy)
    after = steps(json.loads(compile_recipe.__wrapped__("recipes/laptop.yaml").body))
    (copy / file).write_text(text)
    # and the gate reads another record of where the model comes from
    wanted = changed | {"Gate"} if changed else changed
    assert {name for name in before if before[name] != after[name]} == wanted


def test_other_code_trains_into_a_folder_of_its_own(copy: Path):
    recipe = load_recipe(Path("recipes/laptop.yaml"))
    train = find_steps("recipes/laptop.yaml")["Train"]["Arguments"]
    before = train["CheckpointConfig"]["S3Uri"].rpartition("/")[2]
    names = {}
    for path in SHAPING | WITHOUT_EFFECT:
        text = (copy / path).read_text()
        (copy / path).write_text(text + "\n# a comment\n")
        names[path] = build_loop_parts(recipe, None, copy).name
        (copy / path).write_text(text)
    assert {path for path, name in names.items() if name != before} == SHAPING


SHAPING = {"training/loop.py", "training/strategies/ddp.py", "steps/train/job.py",
           "training/workloads/language_model/model.py"}  # fmt: skip
WITHOUT_EFFECT = {"training/watching/trackers.py", "training/workloads/tabular/model.py",
                  "steps/evaluate/job.py", "steps/requirements.txt",
                  "trainyard/common/errors.py"}  # fmt: skip


def cluster(step: dict) -> dict:
    return step["Arguments"]["ProcessingResources"]["ClusterConfig"]


def test_prod_has_the_real_shape():
    steps = find_steps("recipes/prod.yaml")
    train = steps["Train"]["Arguments"]
    assert train["EnableManagedSpotTraining"] is True
    assert train["StoppingCondition"]["MaxWaitTimeInSeconds"] >= 3600
    assert train["CheckpointConfig"]["S3Uri"].startswith("s3://example-corp-trainyard/")
    assert {channel["InputMode"] for channel in train["InputDataConfig"][:2]} == {"FastFile"}
    assert train["VpcConfig"]["Subnets"] and train["OutputDataConfig"]["KmsKeyId"]
    assert "VolumeKmsKeyId" not in train["ResourceConfig"]  # NVMe, encrypted by the hardware
    assert cluster(steps["Shard"])["VolumeKmsKeyId"] == train["OutputDataConfig"]["KmsKeyId"]
    assert "VolumeKmsKeyId" not in cluster(steps["Evaluate"])
    assert {"Key": "cost-center", "Value": "ml-platform"} in train["Tags"]
    assert steps["Train"]["RetryPolicies"] and steps["Train"]["CacheConfig"]["Enabled"]
    assert "gpu" in train["AlgorithmSpecification"]["TrainingImage"]


def test_a_group_that_the_run_creates_gets_the_tags_and_a_shared_one_is_left_alone():
    def tags(*overrides: str) -> list[dict] | None:
        return find_steps("recipes/laptop.yaml", *overrides)["Register"]["Arguments"].get("Tags")

    assert {"Key": "project", "Value": "trainyard"} in (tags() or [])
    shared = "arn:aws:sagemaker:us-east-1:210987654321:model-package-group/models"
    assert tags(f"register.model_package_group={shared}") is None
    assert tags("aws.tags={}") is None


FSX = (
    "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: /abcdefgh/data}",
    "train.input_mode=FSxLustre",
)


def test_lustre_mounts_what_the_shard_step_wrote():
    steps = find_steps("recipes/prod.yaml", *FSX)
    channel = steps["Train"]["Arguments"]["InputDataConfig"][0]
    source = channel["DataSource"]["FileSystemDataSource"]
    assert (source["FileSystemType"], channel["InputMode"]) == ("FSxLustre", "File")
    assert "Shard" in steps["Train"]["DependsOn"]
    assert "CacheConfig" not in steps["Shard"]


@pytest.mark.parametrize("searched", [False, True])
def test_a_script_reads_mounted_shards_and_channels_and_is_never_answered_from_the_cache(searched):
    vpc = "aws.vpc={subnets: [subnet-0a1b2c3d], security_groups: [sg-0a1b2c3d]}"
    system = "{file_system_id: fs-0a1b2c3d, type: EFS, directory_path: /own}"
    channels = f"train.file_systems={{own: {system}}}"
    other = "train.channels={other: s3://somebodys/other}"
    search = "tune={ranges: {eta: [0.05, 0.1]}, trainings: 2, metric: train_log_loss}"
    given = (vpc, channels, other, *([search] if searched else []))

    def channel(step: dict, name: str) -> dict:
        arguments = step["Arguments"]
        inputs = arguments.get("TrainingJobDefinition", arguments)["InputDataConfig"]
        [one] = [one for one in inputs if one["ChannelName"] == name]
        assert one["InputMode"] == "File"
        return one["DataSource"].get("FileSystemDataSource", {})

    trains = ["Tune", "Train"] if searched else ["Train"]
    steps = find_steps("recipes/flights_xgboost.yaml", *given)
    for step in (steps[name] for name in trains):
        assert channel(step, "own")["FileSystemType"] == "EFS"
        assert channel(step, "own")["FileSystemAccessMode"] == "ro"
        assert not channel(step, "other") and not channel(step, "train")
        assert "CacheConfig" not in step
    assert "CacheConfig" in steps["Shard"]
    steps = find_steps("recipes/flights_xgboost.yaml", *given, *FSX)
    for step in (steps[name] for name in trains):
        assert channel(step, "train")["FileSystemType"] == "FSxLustre"
        assert "Shard" in step["DependsOn"]
    assert "CacheConfig" not in steps["Shard"]


def test_tensorboards_files_are_copied_and_its_package_installed_where_it_is_asked_for():
    definition = compile_recipe("recipes/laptop.yaml", THRESHOLDS, "train.loop.tensorboard=true")
    arguments = steps(json.loads(definition.body))["Train"]["Arguments"]
    copied = arguments["TensorBoardOutputConfig"]
    assert copied["LocalPath"] == "/opt/ml/output/tensorboard"
    assert copied["S3OutputPath"] == arguments["OutputDataConfig"]["S3OutputPath"]
    asks = {}
    for asset in definition.assets:
        if content := asset.files.get("requirements.txt"):
            [step] = [name.split("/")[1] for name in asset.files if name.endswith("job.py")]
            asks[step] = "tensorboard" in {e.name for e in parse_lock(content.decode(), "")}
    assert asks == {"shard": False, "train": True, "evaluate": False}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], []),
        (["train.loop.mlflow_tracking_uri=http://mlflow"], ["mlflow-skinny"]),
        (["train.environment={MLFLOW_TRACKING_URI: 'arn:aws:sagemaker:eu-west-1:1:mlflow'}"],
         ["mlflow-skinny", "sagemaker-mlflow"]),
    ],
)  # fmt: skip
def test_the_train_step_installs_what_its_trackers_need(overrides, expected):
    packages = load_recipe(Path("recipes/laptop.yaml"), overrides).train.packages
    assert [re.split("[<>=]", package)[0] for package in packages] == expected


@given(st.text('-a{"', max_size=2000).filter(lambda text: "-" * 200 not in text))
def test_settings_are_cut_into_arguments_that_a_container_may_have(text: str):
    parts = split_argument(text)
    assert "".join(parts) == text
    assert all(0 < len(part) <= 256 for part in parts)
    assert not any(part.startswith("-") for part in parts[1:])


def test_a_wider_model_is_trained_on_the_same_shards_and_longer_samples_are_not():
    def shard(*overrides: str) -> dict:
        return find_steps("recipes/laptop.yaml", *overrides)["Shard"]

    before = shard()
    assert shard("workload.config.dim=256", "workload.config.layers=5") == before
    assert shard("workload.config.context_length=128") != before


def test_settings_of_samples_that_make_no_configuration_are_an_error(monkeypatch):
    monkeypatch.setattr(config, "SPEC", replace(config.SPEC, packed_with=("categories",)))
    with pytest.raises(RecipeError, match=r"workload tabular: SPEC.packed_with .*label"):
        compile_recipe.__wrapped__("recipes/flights.yaml")


def test_who_starts_a_run_cannot_choose_how_it_is_judged_or_approved():
    def parameters(*overrides: str) -> set[str]:
        body = json.loads(compile_recipe("recipes/flights.yaml", *overrides).body)
        register = steps(body)["Register"]["Arguments"]
        assert register["ModelApprovalStatus"] == "PendingManualApproval"
        return {parameter["Name"] for parameter in body["Parameters"]}

    told = {"ChampionArn", "ChampionModelUri", "Look"}
    usual = {"InputUri", "MaxSteps", "TrainInstanceType", "TrainInstanceCount"}
    assert parameters() == told | usual
    # With several instances the job installs Ray; a run cannot ask for them where it does not.
    assert parameters("shard.instance_count=2") == told | usual | {"ShardInstanceCount"}
    assert parameters("pipeline.overridable=[]") == told
    listed = parameters("pipeline.overridable=[MaxSteps, GateMinAuc]")
    assert listed == told | {"MaxSteps", "GateMinAuc"}


def test_records_are_scored_when_the_model_is_registered():
    transform = find_steps("recipes/flights.yaml", "transform={input: s3://a-bucket/new}")[
        "Transform"
    ]
    assert transform["DependsOn"] == ["Register"]
    inputs = {i["InputName"]: i["S3Input"] for i in transform["Arguments"]["ProcessingInputs"]}
    assert inputs["records"]["S3Uri"] == {"Get": "Parameters.TransformInputUri"}
    assert inputs["records"]["S3DataDistributionType"] == "ShardedByS3Key"
    assert "Transform" not in find_steps("recipes/flights.yaml")
