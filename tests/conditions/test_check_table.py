"""The table of the gate's checks: one module makes a check, from the recipe to the report."""

import shutil
from pathlib import Path

import pytest

from conditions.check_table import Demands, GateCheck, list_fields, load_checks
from conditions.gate_check import check_maximum
from conditions.gate_documents import Evidence
from pipelines.run_report.step_documents import format_demand, format_limits, format_value
from steps.gate.config import GateConfig
from tests.conftest import CHECKOUT
from trainyard.common.errors import GateError

ROW = {"kind": "other", "metric": "m", "value": 1.0, "most": 2.0, "demand": "", "missing": ""}

TOY = """
from conditions.gate_check import check_maximum, find_number
from conditions.check_table import Field, GateCheck

CHECKS = (
    GateCheck(
        kind="toy",
        fields=(Field(name="max_parameters", value_type=int, ge=1, doc="Parameters."),),
        judge=lambda evidence, demands: [
            check_maximum(
                kind="toy",
                metric="parameters",
                value=find_number(evidence.evaluation, "model", "parameters"),
                most=demands["max_parameters"],
                demand=f"the recipe demands at most {demands['max_parameters']}",
                missing="model.parameters is missing from the evaluation",
            )
        ],
        picture="budgets",
    ),
)
"""
USED = """
import json, sys
from pathlib import Path
from conditions.gate_arguments import build_arguments
from pipelines.recipe.read_recipe import load_recipe
from pipelines.run_report.run_progress import build_checks_table
from pipelines.run_report import run_pictures as pictures
from pipelines.run_report.run_panels import PANELS
from steps.gate import job
from trainyard.common.errors import RecipeError
from trainyard.terminal import console

root = Path(sys.argv[1])
def load_with(most):
    return load_recipe(Path("recipes/laptop.yaml"), [f"gate={{max_parameters: {most}}}"]).gate

gate = load_with(5)
try:
    load_with(0)
except RecipeError as error:
    print(error)
told = build_arguments(gate.values, primary_metric="loss", directions={"loss": "lower"},
                 champion="none", look_number=0)
print(*told, gate.kinds, gate.packages)
evaluation = {"model": {"parameters": 7}, "dataset": {"fingerprint": "f"}}
folder = root / "processing/input/evaluation"
folder.mkdir(parents=True)
(folder / "evaluation.json").write_text(json.dumps(evaluation))
found = job.judge_evaluation(job.parse_arguments([*told, "--root", str(root)]))
print(found["verdict"], found["reason"], found["kinds"]["toy"])
console.print(build_checks_table(found))
[panel] = [one for one in PANELS if "gate" in one.reads]
print(panel.html({"gate": found, "evaluation": None}))
print(pictures.GATE_PICTURES["budgets"](found, None))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one module more."""
    for name in ("pipelines", "steps", "training", "trainyard", "recipes"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    shutil.copytree(CHECKOUT / "conditions", tmp_path / "conditions")
    (tmp_path / "conditions/checks/toy.py").write_text(TOY)
    return tmp_path


def test_a_new_module_is_a_check_in_recipe_arguments_verdict_summary_and_report(
    checkout: Path, run_python
):
    script = checkout / "used.py"
    script.write_text(USED)
    done = run_python(
        str(script), str(checkout / "ml"), cwd=checkout, env={"PYTHONPATH": str(checkout)}
    )
    assert not done.returncode, done.stderr
    for shown in (
        "gate.max_parameters",  # a wrong value, by its name
        "--primary_metric loss --direction lower --max_parameters 5 ('toy',) ()",
        "reject parameters is 7, the recipe demands at most 5 reject",
        "max_parameters  7.0000  at most 5.0000  reject",
        "parameters: 7 ≤ 5",  # in the picture of the budgets
    ):
        assert shown in done.stdout, done.stdout[:2000]


def test_every_field_is_told_in_the_documents():
    told = (CHECKOUT / "docs/gate.md").read_text(encoding="utf-8")
    missing = [f.name for f in list_fields() if f.form != "thresholds" and f"`{f.name}" not in told]
    assert not missing, "docs/gate.md, The checks: say when each passes"


def test_every_field_is_one_of_the_recipe_with_its_words_and_entries_agree_with_each_other():
    for field in list_fields():
        if field.form != "thresholds":
            assert GateConfig.model_fields[field.name].description == field.doc
    names = [field.name for field in list_fields()]
    assert len(names) == len(set(names))
    for check in load_checks():
        if check.needs & {"champion", "slices", "predictions"}:
            assert "scores" in check.needs, f"{check.kind}: is not read without scores"
        if check.picture == "champion":
            assert check.margins and check.limit


def test_a_check_that_nothing_could_reject_is_refused():
    with pytest.raises(GateError, match="toy: needs scores but has no expected_rows"):
        GateCheck(kind="toy", judge=lambda *_: [], needs=frozenset({"scores"}))
    evidence, demands = Evidence(evaluation={}), Demands(values={})
    with pytest.raises(
        GateError, match=r"toy: returned rows of kinds \[\]; expected rows of kind toy"
    ):
        GateCheck(kind="toy", judge=lambda *_: []).compute_rows(evidence, demands)
    other = GateCheck(kind="toy", judge=lambda *_: [check_maximum(**ROW)])
    with pytest.raises(GateError, match="kinds \\['other'\\]"):
        other.compute_rows(evidence, demands)
    # one that the table lacks is told by its direction
    row = {"kind": "of tomorrow", "direction": "higher", "value": 1.0, "threshold": None}
    shown = (format_demand(row), format_value(row, {}), format_limits(row))
    assert shown == ("at least missing", "1.0000", "")
