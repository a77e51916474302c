"""The folder of a script of one's own: what travels, what stays, what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.compile.user_code import build_script_parts, read_code_folder, read_training_project
from pipelines.definition import from_recipe
from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load_recipe
from trainyard.common.errors import DefinitionError

pytestmark = pytest.mark.long

RECIPE = r"""
pipeline: {name: mine}
aws: {region: us-east-1, role: 'arn:aws:iam::123456789012:role/trainyard', bucket: trainyard-mine}
train:
  script: project/train.py
  arguments: {epochs: 3, lr: 0.01, name: a b, deep: true, sizes: [1, 2]}
  channels: {training: s3://trainyard-mine/data/train}
  metrics: {loss: 'loss=(\S+)'}
evaluate:
  script: scoring/evaluate.py
  channels: {test: s3://trainyard-mine/data/test}
  metrics: {accuracy: higher, log_loss: lower}
gate: {min_accuracy: 0.9}
register: {model_package_group: mine}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a recipe, and with projects beside it."""
    for name, text in {
        "recipe.yaml": RECIPE,
        "project/train.py": "print('loss=1')\n",
        "project/lib/model.py": "",
        "scoring/evaluate.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def train_step(home: Path, *overrides: str) -> dict:
    body = json.loads(from_recipe(home / "recipe.yaml", overrides).body)
    return next(step["Arguments"] for step in body["Steps"] if step["Name"] == "Train")


def uris(request: dict) -> dict[str, str]:
    given = request["InputDataConfig"]
    return {c["ChannelName"]: c["DataSource"]["S3DataSource"]["S3Uri"] for c in given}


def test_a_recipe_without_data_gives_the_job_arguments_channels_and_expressions(home: Path):
    body = json.loads(from_recipe(home / "recipe.yaml").body)
    assert [step["Name"] for step in body["Steps"]] == ["Train", "Evaluate", "Gate", "Verdict"]
    names = [parameter["Name"] for parameter in body["Parameters"]]
    assert "InputUri" not in names and "MaxSteps" not in names and "TrainInstanceCount" in names
    request = body["Steps"][0]["Arguments"]
    assert request["HyperParameters"] == {
        "epochs": "3", "lr": "0.01", "name": "a b", "deep": "true", "sizes": "[1, 2]"
    }  # fmt: skip
    assert uris(request)["training"] == "s3://trainyard-mine/data/train"
    metrics = request["AlgorithmSpecification"]["MetricDefinitions"]
    assert metrics == [{"Name": "loss", "Regex": r"loss=(\S+)"}]
    recipe = load_recipe(home / "recipe.yaml")
    assert Recipe.model_validate_json(recipe.model_dump_json(by_alias=True)) == recipe
    [register] = [s for s in body["Steps"][-1]["Arguments"]["IfSteps"]
                  if s["Type"] == "RegisterModel"]  # fmt: skip
    [container] = register["Arguments"]["InferenceSpecification"]["Containers"]
    assert not {"SAGEMAKER_PROGRAM"} & container.get("Environment", {}).keys()
    assert "it holds no inference.py" in register["Description"]


def test_only_the_content_of_the_folder_names_it_and_the_checkpoints(home: Path):
    first = train_step(home)
    os.utime(home / "project/train.py", (1, 1))
    for litter in ("__pycache__/x.pyc", ".git/config", ".venv/lib/y.py", "mine/pyvenv.cfg", ".env"):
        (home / "project" / litter).parent.mkdir(parents=True, exist_ok=True)
        (home / "project" / litter).write_text("litter")
    assert train_step(home) == first
    (home / "project/lib/model.py").write_text("x = 1\n")
    changed = train_step(home)
    assert uris(changed)["code"] != uris(first)["code"]
    assert changed["CheckpointConfig"] != first["CheckpointConfig"]
    (home / "project/lib/model.py").write_text("")
    assert train_step(home) == first


def test_what_the_training_depends_on_names_it_and_more_machines_go_on(home: Path):
    overrides = ("train.arguments.epochs=4", "train.channels.training=s3://trainyard-mine/other",
                 "train.launcher=none", "train.environment={DETERMINISTIC: '1'}",
                 "images.training=mine/image:1")  # fmt: skip
    assert len({identity(home), *(identity(home, one) for one in overrides)}) == 6
    assert identity(home, "train.instance_count=2") == identity(home)


def identity(home: Path, *overrides: str) -> str:
    recipe = load_recipe(home / "recipe.yaml", overrides)
    project = read_training_project(recipe, home)
    assert project is not None
    return build_script_parts(recipe, project, recipe.images.training or "aws/image:1").name


def test_the_ignore_file_has_gitignores_syntax_and_what_is_secret_by_its_name_stays(tmp_path: Path):
    secret = (".env", ".env.local", "key.pem", "id_rsa", "deep/server.key")
    kept = ["data/keep.csv", "deep/data/b.csv", "train.py"]
    for name in (*kept, *secret, "data/a.csv", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".trainyardignore").write_text("# data\n/data/*\n!/data/keep.csv\n*.txt\n")
    assert sorted(read_code_folder(tmp_path, 20, "train.source_mb")) == kept


@pytest.mark.parametrize("sizes", [{"weights.bin": 6}, {f"part-{n}": 3 for n in range(8)}])
def test_a_folder_that_holds_data_is_refused_and_its_largest_files_named(home: Path, sizes):
    for name, mb in sizes.items():
        (home / "project" / name).write_bytes(bytes(mb * 1_000_000))
    largest = max(sizes, key=lambda name: sizes[name])
    with pytest.raises(DefinitionError, match=rf"{largest} \({sizes[largest]}.0 MB\).*source_mb"):
        train_step(home)
    train_step(home, "train.source_mb=30")  # whoever says yes may


def test_links_out_of_the_folder_are_refused(home: Path):
    (home / "secret.txt").write_text("not of the folder")
    (home / "project/link.txt").symlink_to(home / "secret.txt")
    with pytest.raises(DefinitionError, match=r"link.txt: links out of the folder"):
        train_step(home)
    (home / "project/link.txt").unlink()
    (home / "project/folder").symlink_to(home / "scoring")
    with pytest.raises(DefinitionError, match=r"folder: links out of the folder"):
        train_step(home)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.script=project/tain.py", "train.script: .*tain.py is not a file"),
        ("train.source=scoring", "train.script: .* is not in .*scoring"),
        ("inference.script=scoring/evaluate.py", "inference.script: .* is not in .*project"),
        ("train.requirements=none.txt", "train.requirements: .*none.txt is not a file"),
    ],
)
def test_what_does_not_travel_is_named(home: Path, override, expected):
    with pytest.raises(DefinitionError, match=expected):
        train_step(home, override)


def test_with_shards_the_folder_carries_their_reader(home: Path):
    (home / "project/requirements.txt").write_text("einops\n")
    overrides = ["data.input=s3://trainyard-mine/raw", "evaluate.channels={}"]
    compiled = from_recipe(home / "recipe.yaml", overrides)
    [code] = [asset for asset in compiled.assets if "lib/model.py" in asset.files]
    assert code.files["trainyard-requirements.txt"].split()[:2] == [b"-r", b"requirements.txt"]
    body = json.loads(compiled.body)
    assert [step["Name"] for step in body["Steps"]][:2] == ["Shard", "Train"]
    job = home / "job"
    for name, content in code.files.items():
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_bytes(content)
    words = [sys.executable, "-c", "import training.data.dataset as d; print(d.__file__)"]
    done = subprocess.run(words, cwd=job, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(job / "training/data/dataset.py")
    (home / "project/training").mkdir()
    (home / "project/training/own.py").write_text("")
    with pytest.raises(DefinitionError, match=r"holds training/own.py"):
        from_recipe(home / "recipe.yaml", overrides)


def evaluate_step(home: Path, *overrides: str) -> tuple[dict, dict[str, bytes]]:
    """The step's request, and the files of the folder that the script lies in."""
    compiled = from_recipe(home / "recipe.yaml", overrides)
    steps = {step["Name"]: step["Arguments"] for step in json.loads(compiled.body)["Steps"]}
    inputs = {i["InputName"]: i["S3Input"]["S3Uri"] for i in steps["Evaluate"]["ProcessingInputs"]}
    files = next(asset.files for asset in compiled.assets if asset.uri == inputs["script"])
    return steps["Evaluate"], dict(files)


def test_the_evaluations_folder_travels_apart_with_its_requirements_and_sample_request(home: Path):
    train, (step, files) = train_step(home), evaluate_step(home)
    assert set(files) == {"evaluate.py"}
    (home / "scoring/evaluate.py").write_text("# another")
    assert train_step(home) == train and evaluate_step(home)[0] != step
    (home / "scoring/requirements.txt").write_text("einops\n")
    (home / "scoring/ask.json").write_text("{}")
    (home / "project/inference.py").write_text("")
    step, files = evaluate_step(
        home, "evaluate.request=scoring/ask.json", "inference.script=project/inference.py"
    )
    assert set(files) == {"evaluate.py", "requirements.txt", "ask.json"}
    assert step["Environment"]["SCRIPT_REQUIREMENTS"] == "requirements.txt"
    words = step["AppSpecification"]["ContainerArguments"]
    at = words.index("--request")
    assert words[at + 1 : at + 4] == ["ask.json", "application/json", "application/json"]


def test_with_shards_an_evaluation_is_given_them_and_what_reads_them(home: Path):
    step, files = evaluate_step(
        home, "data.input=s3://trainyard-mine/raw", "evaluate.channels={more: s3://x-bucket/y}"
    )
    words = step["AppSpecification"]["ContainerArguments"]
    at = words.index("--channels")
    assert words[at + 1 : at + 4] == ["train", "test", "more"]
    assert "training/data/torch_dataset.py" in files
    assert b"pyarrow" in files["trainyard-requirements.txt"]
