"""The import rules between the rooms, checked on the source of every module."""

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
ROOMS = ("pipelines", "steps", "training", "conditions", "emulator", "language")

# room or file pattern → packages that nothing in it may import
FORBIDDEN = {
    "pipelines/**/*.py": {"torch", "moto", "emulator"},
    "steps/*.py": {"torch", "pipelines", "emulator"},
    "steps/*/config.py": {"torch", "sagemaker", "boto3", "pipelines", "emulator"},
    "steps/*/step.py": {"torch", "pipelines", "emulator"},
    "steps/*/job.py": {"sagemaker", "boto3", "botocore", "pipelines", "emulator"},
    "training/**/*.py": {"sagemaker", "boto3", "botocore", "pipelines", "steps", "emulator"},
    "conditions/**/*.py": {"torch", "pipelines", "emulator", "training"},
    "language/**/*.py": {
        "sagemaker",
        "boto3",
        "torch",
        "pipelines",
        "steps",
        "training",
        "emulator",
    },
    "emulator/**/*.py": {"sagemaker", "torch", "pipelines", "steps", "training", "conditions"},
}
# what a recipe is checked with; it must not cost the import of torch or of the SDK
LIGHT = [
    "pipelines.recipe",
    "pipelines.validate.__main__",
    "pipelines.watch",
    "pipelines.start",
    "pipelines.plan.__main__",
    "pipelines.plan.prices",
    "pipelines.upsert",
    "pipelines.report",
    "pipelines.permissions.__main__",
    "pipelines.verify.__main__",
    "pipelines.approve",
    "training.config",
    "training.metrics",
]


def imported(path: Path) -> set[str]:
    """Top-level names of all that the module imports, at whatever depth the import stands."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


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


def test_conditions_know_the_sdk_only_in_the_module_that_builds_the_step():
    users = {m.name for m in (CHECKOUT / "conditions").glob("*.py") if "sagemaker" in imported(m)}
    assert users == {"step.py"}


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_do_not_load_torch_or_the_sdk(module: str, run_python):
    code = f"import sys, {module}; print(sorted({{'torch', 'sagemaker'}} & set(sys.modules)))"
    assert run_python("-c", code).stdout.strip() == "[]"


def test_no_module_outgrows_its_room():
    long = {
        str(path.relative_to(CHECKOUT)): lines
        for room in ROOMS
        for path in (CHECKOUT / room).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long
