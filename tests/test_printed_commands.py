"""Commands work as they are printed, in a shell in which nothing was done but what is printed."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer

from pipelines.new import list_kinds, write_project
from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT
from trainyard.terminal import list_missing_lines, make_typer_command

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(\$ )?(make|source|python|pip|trainyard|git) ")
USAGE = typer.BadParameter.__mro__[1]
"""UsageError of the click that typer uses, which is its own copy in some versions."""
THEIRS = {"aws", "bash", "docker", "kubectl", "pip", "podman"}
"""Programs that are not ours, and that nothing is known of here."""


def iter_printed_commands(text: str) -> Iterator[str]:
    """Yield the commands of a document's blocks; where one shows output, those after ``$``."""
    blocks = (block for language, block in FENCE.findall(text) if not language)
    for block in filter(COMMAND.match, blocks):
        lines = block.replace("\\\n", " ").splitlines()
        asked = [line[2:] for line in lines if line.startswith("$ ")]
        yield from (line for line in asked or lines if line.strip())


def documents() -> list[str]:
    """The documents that print commands; benchmarks/README.md is for who works on Trainyard."""
    paths = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md"), CHECKOUT / "infra/README.md"]
    found = [path for path in paths if [*iter_printed_commands(path.read_text(encoding="utf-8"))]]
    return sorted(str(path.relative_to(CHECKOUT)) for path in found)


def find_command_refusal(words: list[str]) -> str | None:
    """Why a command would not begin; None where it would."""
    match words[: words.index(">")] if ">" in words else words:
        case ["make", *rest]:
            options = ("-n", "-o", ".venv/run", "-o", ".venv/installed")
            command = ["make", *options, *rest]
            done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False)
            return done.stderr.decode() or None
        case ["source", path]:
            made = f"-m venv {path.removesuffix('/bin/activate')}\n"
            return None if made in (CHECKOUT / "Makefile").read_text() else "is made by nothing"
        case ["python", "-m", "trainyard", verb, *rest] | ["trainyard", verb, *rest]:
            return _find_verb_refusal(f"trainyard.commands.{verb}", rest)
        case ["python", "-m", module, *rest] if (CHECKOUT / module.split(".")[0]).is_dir():
            return _find_verb_refusal(module, rest)
        case ["python", "-m", package, *rest]:
            locked = f"\n{package}==" in (CHECKOUT / "locks/run.txt").read_text()
            return None if locked else "make run does not install it"
        case ["python", script, *_] if script.endswith(".py"):
            return None  # the reader's own
        case [program, *_]:
            return None if program in THEIRS else "is not known here"
    return "is empty"


def _find_verb_refusal(module: str, words: list[str]) -> str | None:
    """Why a verb of ours does not take ``words``; a command behind them is looked at, too."""
    try:
        found = import_module(module)
        verb = found if hasattr(found, "main") else import_module(f"{module}.__main__")
    except ModuleNotFoundError as missing:
        return str(missing)
    app = typer.Typer(add_completion=False)
    app.command(context_settings=getattr(verb, "SETTINGS", {}))(make_typer_command(verb.main))
    try:
        context = typer.main.get_command(app).make_context(module, [*words])
    except USAGE as error:
        return str(error)
    if lines := list_missing_lines(verb.main, context.params):
        return "; ".join(lines)
    inner = context.params.get("command")
    return find_command_refusal([*inner]) if inner else None


@pytest.fixture(scope="module")
def readmes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A project's README by its kind."""
    folders = {kind: tmp_path_factory.mktemp("projects") / f"my-{kind}" for kind in list_kinds()}
    for kind, folder in folders.items():
        write_project(folder, kind)
    return {kind: folder / "README.md" for kind, folder in folders.items()}


@pytest.mark.parametrize("name", [*documents(), *list_kinds()])
def test_each_printed_command_would_begin(name: str, readmes: dict[str, Path]):
    path = readmes.get(name, CHECKOUT / name)
    commands = [*iter_printed_commands(path.read_text(encoding="utf-8"))]
    faults = {line: find_command_refusal(shlex.split(line, comments=True)) for line in commands}
    assert commands and {line: why for line, why in faults.items() if why} == {}


def test_what_would_not_begin_is_found():
    wrong = {
        "make walk": "No rule",
        "source env/bin/activate": "made by nothing",
        "python -m trainyard wach": "wach",
        "trainyard watch --every 3": "--every",
        "trainyard run -- python -m pipelines.upsert --strat": "--strat",
        "python -m pipelines.plan --recipe a.yaml --json yes": "only one of",
        "python -m pipelines.plan --env prod": "--recipe FILE",
        "python -m ruff check": "does not install",
        "trainyard-watch": "not known",
    }
    found = {line: find_command_refusal(line.split()) or "" for line in wrong}
    assert [line for line, why in wrong.items() if why not in found[line]] == []


@pytest.mark.parametrize("kind", list_kinds())
def test_a_project_names_no_absolute_path_and_its_recipe_the_schema(kind, readmes):
    folder = readmes[kind].parent
    for path in (path for path in folder.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        assert str(folder) not in text.replace(os.path.relpath(folder, CHECKOUT), "")
        assert str(CHECKOUT) not in text.replace(os.path.relpath(CHECKOUT, folder), "")
    recipe = folder / "recipe.yaml"
    assert load_recipe(recipe).pipeline.name == folder.name
    [schema] = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", recipe.read_text(), re.M)
    assert (folder / schema).resolve() == CHECKOUT / "recipes/schema.json"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has of the checkout."""
    folder = tmp_path_factory.mktemp("clone") / "trainyard"
    folder.mkdir()
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=CHECKOUT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    return folder


def shell(clone: Path, script: str, **options) -> subprocess.Popen[str]:
    """Start a script in a fresh shell: an empty HOME, and how this machine reaches its packages."""
    home = clone.with_name("home")
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "UV_"))}
    kept |= {name: os.environ[name] for name in os.environ if name.lower().endswith("_proxy")}
    kept |= {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(
        ["/bin/bash", "-ec", script], cwd=clone, env=kept, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options,
    )  # fmt: skip


def run(clone: Path, script: str) -> str:
    """What a script prints; it must succeed."""
    process = shell(clone, script)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    return said


def make_run_commands() -> list[str]:
    """Return the three commands of README that begin with ``make run``."""
    commands = [*iter_printed_commands((CHECKOUT / "README.md").read_text(encoding="utf-8"))]
    first = next(n for n, command in enumerate(commands) if command.startswith("make run"))
    return commands[first : first + 3]


@pytest.fixture(scope="module")
def installation_output(clone: Path) -> str:
    """README's ``make run`` has run: what it printed."""
    said = shell(clone, make_run_commands()[0]).communicate()[0]
    if "Trainyard needs Python 3.11" in said:
        pytest.skip("/usr/bin has no fit Python")
    return said


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_the_readme_s_three_commands_of_the_training_pipeline(
    clone: Path, installation_output: str
):
    assert "run Succeeded" in installation_output and (clone / "report.html").is_file()
    _, source, console = make_run_commands()
    process = shell(clone, f"{source}\n{console}", process_group=0)
    assert process.stdout is not None
    try:
        said = iter(process.stdout.readline, "")
        url = next(found[1] for line in said if (found := re.search(r"console on (\S+)", line)))
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"trainyard-laptop" in opener.open(url).read()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", list_kinds())
def test_a_project_s_readme(kind: str, clone: Path, installation_output: str):
    run(clone, f"source .venv/bin/activate\npython -m pipelines.new ../my-{kind} --like {kind}")
    block = "\n".join(
        iter_printed_commands((clone.parent / f"my-{kind}/README.md").read_text(encoding="utf-8"))
    )
    assert "run Succeeded" in run(clone, block)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_the_commands_of_running(clone: Path, installation_output: str):
    """Up to the one that trains again to be rejected; those on AWS take an account."""
    text = (CHECKOUT / "docs/running.md").read_text(encoding="utf-8").partition("## On AWS")[0]
    approved = "".join(line for line in iter_printed_commands(text) if "pipelines.approve" in line)
    assert "Approved" in run(clone, f"source .venv/bin/activate\n{approved}")
