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
    "pipelines.recipe.read_recipe", "pipelines.validate", "pipelines.watch", "pipelines.start",
    "pipelines.plan", "trainyard.commands.plan", "trainyard.commands.permissions",
    "trainyard.commands.prices", "trainyard.commands.validate", "pipelines.upsert",
    "pipelines.report", "pipelines.console", "pipelines.permissions", "pipelines.verify",
    "pipelines.approve", "training.config", "training.watching.metric_line",
    "pipelines.run_report.run_panels", "trainyard.runs.live_watch", "trainyard.console.frozen_page",
]  # fmt: skip


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
def list_imported_packages(path: Path, statements: Statements = imports) -> set[str]:
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
    found = {
        path: list_imported_packages(path) & FORBIDDEN[pattern] for path in CHECKOUT.glob(pattern)
    }
    assert found, f"{pattern} matches nothing: the rule guards no room"
    assert not {str(path): names for path, names in found.items() if names}


COMMON = "trainyard.common"


@pytest.mark.parametrize(
    ("room", "of", "allowed"),
    [
        *((room, "trainyard", {COMMON}) for room in ("steps", "training", "conditions")),
        ("trainyard/common", "", {*sys.stdlib_module_names, COMMON}),
        ("trainyard/quality", "", {*sys.stdlib_module_names, "trainyard.quality", "numpy"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_travels_and_the_rooms_below_all_others_need_no_more(room: str, of: str, allowed: set):
    used = {
        name
        for module in (CHECKOUT / room).rglob("*.py")
        for name in list_imported_packages(module)
    }
    assert {name for name in used if name.startswith(of)} <= allowed


def test_algorithms_run_where_nothing_of_trainyard_is_installed():
    known, room = modules(), "trainyard.emulator.algorithms"
    inside = [path for name, path in known.items() if name.startswith(room)]
    needed = {name for path in inside for name in _list_needed_modules(path, known.keys())}
    assert needed and all(name.startswith(room) for name in needed)


def test_conditions_know_the_sdk_only_in_the_module_that_builds_the_step():
    users = {
        m.name
        for m in (CHECKOUT / "conditions").glob("*.py")
        if "sagemaker" in list_imported_packages(m)
    }
    assert users == {"step.py"}


TOGETHER = """
import sys

for name in sys.argv[1:]:
    __import__(name)
    print(name, *({"torch", "sagemaker"} & sys.modules.keys()))
"""


def test_light_modules_do_not_load_torch_or_the_sdk(run_python):
    """One process for all: the first that has more beside its name is the one that loads it."""
    done = run_python("-c", TOGETHER, *LIGHT)
    assert done.stdout.splitlines() == LIGHT, done.stderr


def modules() -> dict[str, Path]:
    paths = [path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")]
    return {_name(path): path for path in paths}


def test_a_rank_that_trains_on_tokens_does_not_load_arrow():
    """It needs no records, only shards: 0.1 s and 40 MB of each rank."""
    known = modules()
    pending = {"steps.train.job", "training.loop", "training.workloads.language_model.workload"}
    loaded: set[str] = set()
    while pending:
        loaded.add(name := pending.pop())
        above = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
        found = _list_needed_modules(known[name], known.keys(), at_once) | above & known.keys()
        pending |= found - loaded
    assert {"training.defaults.flop_count", "training.microbatches"} <= loaded
    assert not [
        name for name in loaded if "pyarrow" in list_imported_packages(known[name], at_once)
    ]


def test_modules_are_neither_long_nor_small_without_a_reason_and_a_room_says_what_is_in_it():
    """A small one is an entry point, or a plug-in's or a convention's file; else it says why."""
    long, unexplained, silent = [], [], []
    for name, path in modules().items():
        text = path.read_text(encoding="utf-8")
        lines, own = len(text.splitlines()), "algorithms/image" in str(path)
        long += [name] if lines > 900 else []
        known = ENTRY.search(text) or path.name in PARTS or path.parent.name in PLUG_INS or own
        if lines < 60 and not known and "separate module because" not in " ".join(text.split()):
            unexplained.append(name)
        if path.name == "__init__.py" and not own:
            said = (ast.get_docstring(ast.parse(text)) or "").splitlines()
            silent += [name] if len(said) < 3 else []
    assert (long, unexplained, silent) == ([], [], [])


def test_no_module_imports_what_imports_it():
    """Imports inside functions, and those for types alone, are imports like any other."""
    known = modules()
    graph = {
        name: _list_needed_modules(path, known.keys()) - {name} for name, path in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' → '.join(error.args[1])}")


def _name(path: Path) -> str:
    return ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__")


def _list_needed_modules(
    path: Path, modules: Set[str], statements: Statements = imports
) -> set[str]:
    """Those of ``modules`` that the one at ``path`` imports, or imports names of."""
    names = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in modules else node.module for name in below}
    return names & modules
