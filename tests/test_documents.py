"""What the documents name is there: links, files, commands and their options, make's targets."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/*.md", "infra/*.md", "benchmarks/*.md")
    for path in sorted(CHECKOUT.glob(pattern))
]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
COMMAND = re.compile(r"python -m ((?:[a-z_]\w*\.)*[a-z_]\w*)(?: ([a-z]+)\b)?")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
PACKAGES = ("pipelines", "steps", "training", "trainyard", "benchmarks", "scripts", "tests")

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT))
)


@cache
def prose(document: Path) -> str:
    """The document without its fenced blocks."""
    return FENCE.sub("", document.read_text(encoding="utf-8"))


@cache
def anchors(document: Path) -> set[str]:
    """The names that GitHub gives to the document's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield (module, verb of ``trainyard``) of each command of ours; without a verb ""."""
    for module, verb in COMMAND.findall(text):
        if module.partition(".")[0] in PACKAGES:
            yield module, verb if module == "trainyard" else ""
    for verb in re.findall(r"^(?:\$ )?trainyard ([a-z]+)", text, re.MULTILINE):
        yield "trainyard", verb


def file_of(module: str, verb: str) -> Path:
    """The module that ``python -m`` would run."""
    if verb:
        return CHECKOUT / f"trainyard/commands/{verb}.py"
    plain = CHECKOUT / f"{module.replace('.', '/')}"
    return plain / "__main__.py" if plain.is_dir() else plain.with_suffix(".py")


@each_document
def test_what_is_linked_is_there(document: Path):
    wrong = []
    for target in LINK.findall(prose(document)):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:", "mailto:")):
            continue
        found = (document.parent / path).resolve() if path else document
        lost = anchor and found.suffix == ".md" and found.exists() and anchor not in anchors(found)
        if not found.exists() or lost:
            wrong.append(target)
    assert not wrong


@each_document
def test_the_files_that_are_named_are_there(document: Path):
    left_by_runs = {".trainyard"}
    rooms = {path.name for path in CHECKOUT.iterdir() if path.is_dir()} - left_by_runs
    named = {
        word
        for code in CODE.findall(prose(document))
        for word in code.split()
        if re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", word) and word.partition("/")[0] in rooms
        if "/" in word
    }
    assert [name for name in sorted(named) if not [*CHECKOUT.glob(name.rstrip("/"))]] == []


@each_document
def test_the_commands_that_are_named_are_there(document: Path):
    named = {*commands(document.read_text(encoding="utf-8"))}
    assert [command for command in sorted(named) if not file_of(*command).is_file()] == []


@each_document
def test_the_options_that_are_named_are_there(document: Path):
    wrong = []
    for line in document.read_text(encoding="utf-8").splitlines():
        roots = {module.partition(".")[0] for module, _ in commands(line)}
        known = " ".join(sources(root) for root in roots | {"steps"} if roots)
        wrong += [
            option
            for option in OPTION.findall(line)
            if roots and f"--{option}" not in known
            if option.removeprefix("no-").replace("-", "_") not in known
        ]
    assert wrong == []


@cache
def sources(room: str) -> str:
    """All Python of a room."""
    paths = sorted((CHECKOUT / room).rglob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@each_document
def test_the_targets_of_make_are_there(document: Path):
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    text = document.read_text(encoding="utf-8")
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    said = [*lines, *CODE.findall(prose(document))]
    named = {found[1] for line in said if (found := re.match(r"(?:\$ )?make ([a-z-]+)", line))}
    assert [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_the_readme_is_short_and_contributing_says_how_many_files_an_addition_takes():
    """At most three; and the tests that it names to run are there."""
    assert len((CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130
    text = prose(CHECKOUT / "CONTRIBUTING.md")
    entries = dict(re.findall(r"^### … (.+)\n((?:(?!^#).*\n)*)", text, re.MULTILINE))
    counted = [name for name, said in entries.items() if re.search(r"(one|two|three) files?", said)]
    assert len(entries) == 12 and counted == [*entries]
    whole = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"make test T=\"?([\w/.]+)", whole)
    assert named and all((CHECKOUT / name).exists() for name in named)


def test_nothing_tells_to_install_a_stranger_s_package():
    """The package's own name on PyPI is somebody else's: ours installs under the project's name."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    wrong = []
    for name in listed.stdout.split("\0"):
        if not name.endswith((".md", ".py", ".sh", ".toml", ".yaml", ".yml", ".jsonl", ".j2")):
            continue
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        asked = re.findall(r"pip install[^`\n]*?[ '\"](trainyard)(?![\w/.-])", text)
        extras = re.findall(r"(?<![\w-])([\w-]*trainyard)\[[a-z]", text)
        wrong += [(name, said) for said in [*asked, *extras] if said != project["name"]]
    assert wrong == []
