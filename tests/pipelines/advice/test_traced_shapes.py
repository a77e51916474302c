"""A traced model's shapes are kept, and speak for their own workload, settings and code alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.advice import traced_shapes
from pipelines.advice.training_setting import derive_job_training, derive_recipe_training
from pipelines.definition import from_recipe
from pipelines.delivery.training_estimate import predict_trainings
from pipelines.recipe.read_recipe import load_recipe
from pipelines.rules import check_definition
from tests.conftest import CHECKOUT, call_module
from trainyard.common.errors import ForesightError
from trainyard.plan.run_cost import Foreseen, NotForeseen

pytestmark = pytest.mark.long

WORKLOAD = """
from pydantic import BaseModel

from training.workloads import Column
from training.workloads.simple import Simple


class Settings(BaseModel):
    width: int = 512


class Workload(Simple):
    columns = {"x": Column("list", length=64), "y": Column("number")}
    settings = Settings

    def model(self):
        from torch import nn

        return nn.Sequential(nn.Linear(64, self.config.width), nn.ReLU(), nn.Linear(self.config.width, 1))

    def inputs(self, batch):
        return (batch["x"],)

    def loss(self, outputs, batch):
        return (outputs[:, 0] - batch["y"]).square().sum()
"""  # noqa: E501
PARAMETERS = 64 * 512 + 512 + 512 + 1


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's recipe on GPUs, with a workload that is not ours, and its model's shapes."""
    home = tmp_path_factory.mktemp("project")
    package = home / "src" / "kept_somebody"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "work.py").write_text(WORKLOAD)
    text = (CHECKOUT / "templates/table/recipe.yaml").read_text()
    gate, register = text.index("gate:"), text.index("register:")
    text = text[:gate] + "gate: {max_loss: 1.0, instance_type: ml.m5.large}\n\n" + text[register:]
    text = text.replace("my_project.workload", "kept_somebody.work")
    (home / "recipe.yaml").write_text(text.replace("ml.m5.large", "ml.g5.xlarge"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced_shapes, "FOLDER", home / "shapes")
        done = call_module("pipelines.advise", "--recipe", str(home / "recipe.yaml"), "--trace")
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def shapes(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a folder of shapes of the test's own."""
    monkeypatch.setattr(traced_shapes, "FOLDER", tmp_path)
    [found] = (project / "shapes").iterdir()
    (tmp_path / found.name).write_bytes(found.read_bytes())
    yield tmp_path


def foresee_training(project: Path, *overrides: str) -> Foreseen | NotForeseen:
    body = from_recipe(project / "recipe.yaml", overrides).body
    return predict_trainings(json.loads(body), "us-east-1")["Train"]


def why_not(project: Path, *overrides: str) -> str:
    with pytest.raises(ForesightError) as refused:
        derive_recipe_training(load_recipe(project / "recipe.yaml", overrides))
    return str(refused.value)


def test_a_plan_foresees_the_workload_whose_shapes_are_kept(project: Path, shapes: Path):
    found = foresee_training(project)
    assert isinstance(found, Foreseen) and found.seconds.p10 < found.seconds.p90
    assert any(line.startswith("fits: needs ") for line in found.remarks)
    ours = derive_recipe_training(load_recipe(project / "recipe.yaml", ()))
    assert ours.shapes and ours.shapes.parameters == PARAMETERS
    assert ours.assumptions == ()


def test_a_job_says_as_much_as_its_recipe(project: Path, shapes: Path):
    recipe = load_recipe(project / "recipe.yaml", ())
    assert recipe.train.loop
    job = {name: str(v) for name, v in recipe.train.loop.model_dump(mode="json").items()}
    job |= {"workload": recipe.workload.name}
    job["workload_config"] = recipe.workload_config.model_dump_json()
    assert derive_job_training(job, "ml.g5.xlarge", 1) == derive_recipe_training(recipe)
    job["tuning"] = '{"adapters": {"rank": 8}}'
    with pytest.raises(ForesightError, match="adapters in the model of .* are not modelled"):
        derive_job_training(job, "ml.g5.xlarge", 1)


def test_shapes_do_not_speak_for_other_settings(project: Path, shapes: Path):
    unknown = "with these settings, are not known; trace it: python -m pipelines.advise"
    assert unknown in why_not(project, "workload.config.width=513")
    assert unknown in why_not(project, "train.loop.precision=bfloat16")
    [file] = shapes.iterdir()
    file.unlink()
    said = why_not(project)
    assert unknown in said
    found = foresee_training(project)
    assert isinstance(found, NotForeseen) and found.why == said


def list_stale_shapes(project: Path, *overrides: str) -> list[str]:
    """Return the message of ``validate`` about the shapes."""
    found = check_definition(from_recipe(project / "recipe.yaml", overrides).body)
    return [one.problem for one in found if one.rule == "traced-shapes-are-stale"]


def test_shapes_do_not_speak_for_other_code(project: Path, shapes: Path):
    code = project / "src/kept_somebody/work.py"
    before = code.read_text()
    assert (
        list_stale_shapes(project) == list_stale_shapes(project, "workload.config.width=513") == []
    )
    try:
        code.write_text(before + "# a comment\n")
        why = "kept_somebody.work has changed since its model was traced"
        assert why in why_not(project)
        [warned] = list_stale_shapes(project)
        assert why in warned
    finally:
        code.write_text(before)


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "cannot be read"), ("[]", "holds no shapes"), ("{}", "its settings do not match its"),
     (None, "units.0.matmul_flops")],
)  # fmt: skip
def test_a_file_that_holds_no_shapes_is_named(project: Path, shapes: Path, text, why: str):
    [file] = shapes.iterdir()
    tree = json.loads(file.read_text())
    tree["units"][0].pop("matmul_flops")
    file.write_text(json.dumps(tree) if text is None else text)
    said = why_not(project)
    assert str(file) in said and why in said and "trace it again" in said


def test_code_that_is_not_here_is_assumed_to_be_as_it_was(shapes: Path):
    of = traced_shapes.ShapesKey("nowhere.to_be_found", {"width": 1}, "bf16")
    [file] = shapes.iterdir()
    units = {name: v for name, v in json.loads(file.read_text()).items() if name != "of"}
    traced_shapes.store_shapes(of, units)
    found, assumed = traced_shapes.find_shapes(of)
    assert found.parameters == PARAMETERS
    assert assumed and assumed[0].startswith(
        "the code of workload nowhere.to_be_found, which is not"
    )
