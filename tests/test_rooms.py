"""The import rules between the rooms, checked on the source of every module."""

import ast
import re
import sys
from collections.abc import Callable, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parent.parent
ROOMS = ("pipelines", "steps", "training", "conditions", "trainyard")
APPLICATION = {"pipelines", "steps", "training", "conditions"}

# room or file pattern → packages, or rooms of trainyard, that nothing in it may import
FORBIDDEN = {
    "pipelines/**/*.py": {"torch", "moto", "trainyard.emulator"},
    "steps/*.py": {"torch", "pipelines", "trainyard.emulator"},
    "steps/*/config.py": {"torch", "sagemaker", "boto3", "pipelines", "trainyard.emulator"},
    "steps/*/step.py": {"torch", "pipelines", "trainyard.emulator"},
    "steps/*/job.py": {"sagemaker", "boto3", "botocore", "pipelines"},
    "training/**/*.py": {"sagemaker", "boto3", "botocore", "pipelines", "steps"},
    "conditions/**/*.py": {"torch", "pipelines", "training"},
    "trainyard/**/*.py": {"torch", "sagemaker", *APPLICATION},
}
# what a recipe is checked with; it must not cost the import of torch or of the SDK
LIGHT = [
    "pipelines.recipe.read_recipe",
    "pipelines.validate",
    "pipelines.watch",
    "pipelines.start",
    "pipelines.plan",
    "trainyard.commands.plan",
    "trainyard.commands.permissions",
    "trainyard.commands.prices",
    "trainyard.commands.validate",
    "pipelines.upsert",
    "pipelines.report",
    "pipelines.console",
    "pipelines.permissions",
    "pipelines.verify",
    "pipelines.approve",
    "training.config",
    "training.watching.metric_line",
    "pipelines.run_report.run_panels",
    "trainyard.runs.live_watch",
    "trainyard.console.frozen_page",
]


ENTRY = re.compile(r"^if __name__ == .__main__.:", re.MULTILINE)
PARTS = {"__init__.py", "__main__.py", "config.py", "step.py", "job.py", "packing.py"}
"""Files that a step, a workload or a package has by convention."""
PLUG_INS = {"checks", "commands", "corpora", "rules", "step_types", "steps", "strategies"}
"""Rooms with one file an entry, which are found by their names; ``steps`` of the emulator."""

Statements = Callable[[Path], list[ast.Import | ast.ImportFrom]]


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The module's import statements, at whatever depth."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def at_once(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Those that are executed when the module is imported, and not only for types."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def imported(path: Path, statements: Statements = imports) -> set[str]:
    """Packages, and rooms of trainyard, that the module imports, at whatever depth."""
    names = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {_room(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {_room(f"{node.module}.{alias.name}") for alias in node.names}
    return names


def _room(module: str) -> str:
    """The package, and of ``trainyard`` the room in it."""
    depth = 2 if module.startswith("trainyard.") else 1
    return ".".join(module.split(".")[:depth])


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_room_imports_only_what_it_may(pattern: str):
    modules = sorted(CHECKOUT.glob(pattern))
    assert modules, f"{pattern} matches nothing: the rule guards no room"
    broken = {
        str(module.relative_to(CHECKOUT)): sorted(imported(module) & FORBIDDEN[pattern])
        for module in modules
        if imported(module) & FORBIDDEN[pattern]
    }
    assert not broken


@pytest.mark.parametrize("room", ["steps", "training", "conditions"])
def test_what_travels_needs_nothing_of_trainyard_but_common(room: str):
    used = {
        name
        for module in (CHECKOUT / room).rglob("*.py")
        for name in imported(module)
        if name.startswith("trainyard")
    }
    assert used <= {"trainyard.common"}


def test_the_analyser_needs_nothing_but_numpy():
    modules = sorted((CHECKOUT / "trainyard/quality").rglob("*.py"))
    used = {name for module in modules for name in imported(module)}
    assert used <= {*sys.stdlib_module_names, "trainyard.quality", "numpy"}


def test_algorithms_run_where_nothing_of_trainyard_is_installed():
    modules = {_name(path): path for path in (CHECKOUT / "trainyard").rglob("*.py")}
    room = "trainyard.emulator.algorithms"
    inside = [path for name, path in modules.items() if name.startswith(room)]
    needed = {name for path in inside for name in _needed(path, modules.keys())}
    assert needed and all(name.startswith(room) for name in needed)


def test_common_needs_nothing_but_the_standard_library():
    modules = sorted((CHECKOUT / "trainyard/common").rglob("*.py"))
    used = {name for module in modules for name in imported(module)}
    assert used <= {*sys.stdlib_module_names, "trainyard.common"}


def test_conditions_know_the_sdk_only_in_the_module_that_builds_the_step():
    users = {m.name for m in (CHECKOUT / "conditions").glob("*.py") if "sagemaker" in imported(m)}
    assert users == {"step.py"}


ALONE = """
import os, sys
import boto3, pydantic, rich.console, typer  # once, and not once a module

for name in sys.argv[1:]:
    sys.stdout.flush()
    if os.fork() == 0:
        __import__(name)
        print(name, *({"torch", "sagemaker"} & sys.modules.keys()), flush=True)
        os._exit(0)
    os.wait()
"""
"""What each module loads, in a process of its own."""
TOGETHER = """
import sys

for name in sys.argv[1:]:
    __import__(name)
print("loaded", *({"torch", "sagemaker"} & sys.modules.keys()))
"""
"""What all of them load, in one process: a fifth of the time."""


def test_light_modules_do_not_load_torch_or_the_sdk(run_python):
    together = run_python("-c", TOGETHER, *LIGHT)
    if together.stdout != "loaded\n":  # which of them?
        assert run_python("-c", ALONE, *LIGHT).stdout.splitlines() == LIGHT
        pytest.fail(together.stdout + together.stderr)


def test_a_rank_that_trains_on_tokens_does_not_load_arrow():
    """It needs no records, only shards: 0.1 s and 40 MB of each rank."""
    paths = [path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")]
    modules = {_name(path): path for path in paths}
    pending = {"steps.train.job", "training.loop", "training.workloads.language_model.workload"}
    loaded: set[str] = set()
    while pending:
        loaded.add(name := pending.pop())
        above = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
        found = _needed(modules[name], modules.keys(), at_once) | above & modules.keys()
        pending |= found - loaded
    assert {"training.defaults.flop_count", "training.microbatches"} <= loaded
    assert not [name for name in loaded if "pyarrow" in imported(modules[name], at_once)]


def test_no_module_outgrows_its_room():
    long = {
        str(path.relative_to(CHECKOUT)): lines
        for room in ROOMS
        for path in (CHECKOUT / room).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 900
    }
    assert not long


def test_a_small_module_is_small_for_a_reason():
    """An entry point, a file that a room of plug-ins or a convention asks for; else it says why."""
    unexplained = [
        str(path.relative_to(CHECKOUT))
        for room in ROOMS
        for path in (CHECKOUT / room).rglob("*.py")
        if len((text := path.read_text(encoding="utf-8")).splitlines()) < 60
        and not (ENTRY.search(text) or path.name in PARTS or path.parent.name in PLUG_INS)
        and "algorithms/image" not in str(path)
        and "separate module because" not in " ".join(text.split())
    ]
    assert not unexplained


def test_each_room_says_what_is_in_it():
    silent = [
        str(path.relative_to(CHECKOUT))
        for room in ROOMS
        for path in (CHECKOUT / room).rglob("__init__.py")
        if len((ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()) < 3
        and "algorithms/image" not in str(path)
    ]
    assert not silent


def test_no_module_imports_what_imports_it():
    """Imports inside functions, and those for types alone, are imports like any other."""
    paths = [path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")]
    modules = {_name(path): path for path in paths}
    graph = {name: _needed(path, modules.keys()) - {name} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' → '.join(error.args[1])}")


def _name(path: Path) -> str:
    return ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__")


def _needed(path: Path, modules: Set[str], statements: Statements = imports) -> set[str]:
    """Those of ``modules`` that the one at ``path`` imports, or imports names of."""
    names = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in modules else node.module for name in below}
    return names & modules
