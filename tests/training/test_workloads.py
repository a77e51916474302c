"""Finding a workload by name, and the errors if it fails."""

from pathlib import Path

import pytest

from training.workloads import load_spec, load_workload, parse_settings
from trainyard.common.errors import TrainingError

TOYS = Path(__file__).parent


def test_a_workload_of_ones_own_is_found_by_its_package(monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    assert load_spec("toys.ragged").primary_metric == "loss"
    assert load_workload("toys.ragged", {"dropout": 0.1}).config.dropout == 0.1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("langauge_model", "shipped with Trainyard: image, language_model, tabular"),
        ("no.such", "there is no no.such.config"),
        ("", "is not a name of a Python package"),
        (".relative", "is not a name of a Python package"),
    ],
)
def test_an_unknown_workload_is_named(name, expected):
    with pytest.raises(TrainingError, match=expected):
        load_spec(name)


def test_a_missing_import_inside_a_workload_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "mine/work").mkdir(parents=True)
    (tmp_path / "mine/work/config.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        load_spec("mine.work")


def test_a_wrong_setting_is_named_with_its_value():
    with pytest.raises(TrainingError, match="workload_config.layers: is 0; .*greater"):
        load_workload("language_model", {"layers": 0})
    with pytest.raises(TrainingError, match="workload_config.layrs: is 3"):
        load_workload("language_model", {"layrs": 3})


@pytest.mark.parametrize(("text", "expected"), [("{", "is not JSON"), ("[1]", "JSON object")])
def test_settings_that_are_no_json_object(text, expected):
    with pytest.raises(TrainingError, match=expected):
        parse_settings(text)
