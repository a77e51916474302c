"""Everything that a recipe can name exists, and everything that exists can be named."""

import ast
from pathlib import Path
from typing import get_args

import pytest

from steps.shard.readers import FORMATS
from steps.train import config
from tests.conftest import CHECKOUT
from training.config import TrainConfig
from training.optimizers import OPTIMIZERS, SCHEDULES
from training.strategy_table import SPLIT_PLACE, STRATEGIES
from training.workloads import load_spec


def classes(path: Path) -> list[str]:
    """Return a module's classes that can be started: Strategy, and those derived from a
    strategy.
    """
    nodes = [n for n in ast.parse(path.read_text(encoding="utf-8")).body]
    known = {place.partition(".")[2] for place in places()}
    found = [n for n in nodes if isinstance(n, ast.ClassDef)]
    derived = {n.name for n in found for base in n.bases if ast.unparse(base) in known}
    return sorted(derived | {n.name for n in found if n.name == "Strategy"})


def places() -> set[str]:
    return {entry.class_path for entry in STRATEGIES.values()}


def test_every_strategy_is_in_the_table_and_nothing_else_is():
    room = CHECKOUT / "training/strategies"
    found = {f"{path.stem}.{name}" for path in room.glob("*.py") for name in classes(path)}
    assert found == places() and SPLIT_PLACE in places()


def test_what_aws_documents_is_of_strategies_that_there_are():
    named = {*config.INSTANCE_TYPES, *config.LAUNCHERS, *config.REQUIREMENTS} - {"mpi"}
    assert named <= STRATEGIES.keys()


@pytest.mark.parametrize(
    ("field", "table"),
    [("strategy", STRATEGIES), ("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)],
)
def test_what_a_setting_can_be_is_what_the_loop_has(field, table):
    assert set(get_args(TrainConfig.model_fields[field].annotation)) == set(table)


def test_every_module_that_reads_records_has_suffixes():
    readers = {
        path.stem
        for path in (CHECKOUT / "steps/shard/readers").glob("[a-z]*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == "read"
    }
    assert {reader.__module__.rpartition(".")[2] for reader in FORMATS.values()} == readers


@pytest.mark.parametrize(
    "folder", [path.parent for path in (CHECKOUT / "training/workloads").glob("*/config.py")]
)
def test_a_workload_has_a_score_for_each_metric_that_it_declares(folder: Path):
    module = next(path for n in ("scores", "workload") if (path := folder / f"{n}.py").exists())
    computed = module.read_text(encoding="utf-8")
    declared = load_spec(folder.name).metrics
    assert load_spec(folder.name).primary_metric in declared
    assert not [metric for metric in declared if f'"{metric}' not in computed]
