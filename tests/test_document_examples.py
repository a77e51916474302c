"""The examples of the documents are executed: Python as it is printed, YAML as a recipe.

``test_printed_commands.py`` has the commands. An example that needs something around it (data, an
AWS) gets it from a surrounding of the same name as its document and heading.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT
from tests.test_documents import DOCUMENTS
from tests.trainyard.emulator.harness import cloud, pipeline, process_step, taken_for_aws
from trainyard.common.errors import RecipeError

BLOCK = re.compile(r"^```(python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
RECIPES = sorted(path.name for path in (CHECKOUT / "recipes").glob("*.yaml"))


def examples(language: str) -> dict[str, str]:
    """Document and heading → the code below it; a second one below a heading has a number."""
    found: dict[str, str] = {}
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block[1] != language:
                continue
            headings = HEADING.findall(re.sub(r"^```.*?^```", "", text[: block.start()],
                                              flags=re.MULTILINE | re.DOTALL))  # fmt: skip
            name = f"{document.relative_to(CHECKOUT)}: {headings[-1]}"
            count = sum(key.partition(" #")[0] == name for key in found)
            found[f"{name} #{count + 1}" if count else name] = block[2]
    return found


PYTHON, YAML = examples("python"), examples("yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recipes, beside what the examples name: scripts, a workload, a table."""
    top = tmp_path_factory.mktemp("examples")
    shutil.copytree(CHECKOUT / "recipes", top / "recipes")
    for name in ("examples", "training", "steps"):
        (top / name).symlink_to(CHECKOUT / name)
    (top / "my-project").mkdir()
    for name in ("train.py", "evaluate.py", "inference.py"):
        (top / "my-project" / name).touch()
    write_workload(top / "my-code")
    return top / "recipes"


def write_workload(place: Path) -> None:
    """Write the workload of docs/recipes.md, with the network that it speaks of."""
    (place / "my_package").mkdir(parents=True)
    (place / "my_package/__init__.py").touch()
    code = "from training.workloads.simple import Column, Simple\n\n\n"
    code += PYTHON["docs/recipes.md: Your own model"]
    (place / "my_package/my_workload.py").write_text(code)
    network = "from torch.nn import Linear\n\n\ndef Network():\n    return Linear(2, 3)\n"
    (place / "my_package/network.py").write_text(network)


def merge_documents(base: Any, addition: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(addition, dict):
        return addition
    return {
        **base,
        **{name: merge_documents(base.get(name), value) for name, value in addition.items()},
    }


def recipes_with(block: dict[str, Any], base: dict[str, Any]) -> list[dict[str, Any]]:
    """The recipes that a reader of the block may mean: its fields are added to one of ours; its
    sections replace those; or it is all but the account.
    """
    account = {name: base[name] for name in ("aws", "pipeline") if name in base}
    return [merge_documents(base, block), base | block, merge_documents(account, block)]


@pytest.mark.parametrize("name", YAML)
def test_a_recipe_can_have_it(name: str, folder: Path):
    block = yaml.safe_load(YAML[name].replace("{…}", "{}")) or {}
    path, faults = folder / "mine.yaml", dict[str, list[str]]()
    bases = {base: yaml.safe_load((folder / base).read_text()) for base in RECIPES}
    document = name.partition(":")[0]
    first = next(each for each in YAML if each.startswith(f"{document}:") or each == name)
    if first != name:  # the reader goes on with the document's own recipe
        account = {section: bases["laptop.yaml"][section] for section in ("aws", "pipeline")}
        bases[first] = account | (yaml.safe_load(YAML[first]) or {})
    if "extends" in block:
        bases = {"": {}}
    for base, fields in bases.items():
        for recipe in recipes_with(block, fields):
            path.write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")
            try:
                load_recipe(path)
            except RecipeError as error:
                faults.setdefault(base, []).append(str(error))
            else:
                return
    pytest.fail(f"no recipe can have it: {json.dumps(faults, indent=1, ensure_ascii=False)}")


def test_what_no_recipe_can_have_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(YAML, "wrong", "gate: {max_bits_per_bite: 2.8}\n")
    with pytest.raises(pytest.fail.Exception, match="max_bits_per_byte"):
        test_a_recipe_can_have_it("wrong", folder)


Surrounding = Callable[[str, Path, pytest.MonkeyPatch], None]
SURROUNDINGS: dict[str, Surrounding] = {}


def surrounds(name: str) -> Callable[[Surrounding], Surrounding]:
    def enter(execute: Surrounding) -> Surrounding:
        SURROUNDINGS[name] = execute
        return execute

    return enter


@pytest.mark.parametrize("name", PYTHON)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert {*SURROUNDINGS} <= {*PYTHON}
    monkeypatch.chdir(tmp_path)
    SURROUNDINGS.get(name, lambda code, *_: exec(code, {}))(PYTHON[name], tmp_path, monkeypatch)


@surrounds("docs/emulator.md: In your tests")
def run_somebody_elses_test(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = json.dumps(pipeline([process_step("Say", "echo hello")]))
    (place / "my_pipeline.py").write_text(f"""
import boto3
def upsert_and_start():
    sm = boto3.client("sagemaker")
    sm.create_pipeline(PipelineName="p", PipelineDefinition={definition!r},
                       ClientRequestToken="t" * 32, RoleArn="arn:aws:iam::123456789012:role/p")
    return sm.start_pipeline_execution(PipelineName="p")
""")
    (place / "test_mine.py").write_text(f"import my_pipeline\n\n\n{code}")
    options = ("-p", "no:cacheprovider", "-p", "trainyard.pytest_plugin", "-c", os.devnull)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "test_mine.py"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@surrounds("README.md: Your own pipeline")
def run_the_first_pipeline(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "my_pipeline.py").write_text(code)
    command = [sys.executable, "-m", "trainyard", "run", "--", sys.executable, "my_pipeline.py"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    printed = done.stdout + done.stderr  # a run that is waited for is shown step by step
    assert done.returncode == 0 and "pipeline/hello/execution/" in printed, printed
    assert "Succeeded" in printed, printed


@surrounds("docs/emulator.md: Several accounts")
def assume(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    with cloud(place) as aws, taken_for_aws(aws):
        exec(code, {"boto3": boto3})


@surrounds("docs/recipes.md: Your own model")
def train_the_workload(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from training.workloads import load_workload

    write_workload(place)
    monkeypatch.syspath_prepend(place)
    workload: Any = load_workload("my_package.my_workload", {})
    batch = {"length": torch.ones(4), "width": torch.ones(4), "kind": torch.zeros(4).byte()}
    loss = workload.loss(workload.model()(*workload.inputs(batch)), batch)
    assert loss.requires_grad and loss.ndim == 0


@surrounds("docs/scripts.md: The evaluation script")
def score(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import joblib
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    rows = pd.DataFrame({"id": range(8), "user": [1, 2] * 4, "country": ["de"] * 8,
                         "x1": np.arange(8.0), "x2": 1.0, "y": [0, 1] * 4})  # fmt: skip
    for name in ("MODEL_DIR", "CHANNEL_TEST", "CHANNEL_TRAIN", "OUTPUT_DATA_DIR"):
        (place / name).mkdir()
        monkeypatch.setenv(f"SM_{name}", str(place / name))
    joblib.dump(LogisticRegression().fit(rows[["x1", "x2"]], rows.y), "MODEL_DIR/model.joblib")
    rows.to_csv("CHANNEL_TEST/test.csv"), rows.to_csv("CHANNEL_TRAIN/train.csv")
    exec(code, {})
    scores = pd.read_parquet("OUTPUT_DATA_DIR/scores.parquet")
    assert [*scores] == ["example", "group", "slice.country", "accuracy", "probability", "label"]
    assert [*pd.read_parquet("OUTPUT_DATA_DIR/train_examples.parquet")] == ["example", "group"]


def write_shards(place: Path) -> None:
    from tests.training.data.test_dataset import FIELDS, make
    from training.data.shard_writer import write_dataset

    fields = {"tokens": FIELDS["tokens"]}
    write_dataset(place, {"tokens": make(40)["tokens"]}, fields, host="algo-1", shard_bytes=60)


@surrounds("docs/shards.md: Some lines of numpy")
def read_with_numpy(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.data.dataset import Dataset

    write_shards(place / "train")
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["tokens"]) == 40  # noqa: PLR2004
    assert names["tokens"].tolist() == Dataset(place / "train").read(range(40))["tokens"].tolist()


@surrounds("docs/training.md: Others' loops on our shards")
def read_with_torch(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(place / "train")
    monkeypatch.setenv("SM_CHANNEL_TRAIN", str(place / "train"))
    names: dict[str, Any] = {"os": os, "max_steps": 3, "global_batch": 4}
    exec(code, names)
    assert [len(batch["tokens"]) for batch in names["loader"]] == [4, 4, 4]


@surrounds("docs/training.md: What is handed on")
def load_in_transformers(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "vocab_size": 16}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=1)
    transformers.LlamaForCausalLM(config).save_pretrained("model")
    exec(code, {})
