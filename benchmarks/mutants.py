"""Do the tests notice a change of the code? One seeded edit after the other, and its nearest tests.

python -m benchmarks.mutants [--count 300] [--seed 0] [--json F] [--before CHECKOUT]

An edit turns a comparison, an operator or a condition round, moves a number by one, or leaves a
statement out, in the rooms whose faults cost most. Its nearest tests are those that import the
module, then those that import what imports it, of the quick ones; a mutant that none of them kills
within the time survives. With --before the survivors are tried in another checkout, by
that checkout's tests: a mutant killed there and not here is a promise that lost its test, and the
exit status is 1. It edits the checkout that it runs in, and puts each file back.
"""

import ast
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import resumed

ROOMS = ("training", "conditions", "trainyard/emulator/dag", "trainyard/plan", "trainyard/validate")
TURNED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip
SECONDS = 90  # of a mutant's tests
FILES = 8  # test files that are tried, the nearest first


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: in ``function`` of ``path`` the text ``old`` becomes ``new``."""

    path: str
    function: str
    line: int
    column: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """The mutant's name in the results."""
        return f"{self.path}:{self.line}:{self.column} {self.old!r} -> {self.new!r}"


def mutants(checkout: Path, path: str) -> Iterator[Mutant]:
    """Every edit that can be made in one file's functions."""
    text = (checkout / path).read_text(encoding="utf-8")
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                old = ast.get_source_segment(text, node)
                new = _turned(node)
                if old and new and "\n" not in old and new != old:
                    where = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
                    yield Mutant(path, function.name, *where, old, new)


def _turned(node: ast.AST) -> str | None:
    """The edited text of a node; None where it has no edit."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        operators = [TURNED[type(node.ops[0])](), *node.ops[1:]]
        return ast.unparse(ast.Compare(node.left, operators, node.comparators))
    if isinstance(node, ast.BinOp) and type(node.op) in TURNED:
        return f"({ast.unparse(ast.BinOp(node.left, TURNED[type(node.op)](), node.right))})"
    if isinstance(node, ast.BoolOp):
        return f"({ast.unparse(ast.BoolOp(TURNED[type(node.op)](), node.values))})"
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "pass"
    return None


@cache
def _imports(checkout: Path) -> dict[str, set[str]]:
    """Each Python file and the modules that it imports, ours only."""
    found: dict[str, set[str]] = {}
    for path in subprocess.run(
        ["git", "ls-files", "*.py"], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout.split():
        names: set[str] = set()
        for node in ast.walk(ast.parse((checkout / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
            elif isinstance(node, ast.Import):
                names |= {one.name for one in node.names}
        found[path] = names
    return found


def nearest(checkout: Path, path: str) -> list[str]:
    """The test files next to a module: those of its name first, then by the length of imports."""
    imports, level, tests = _imports(checkout), {path}, []
    seen = {path}
    for _ in range(3):
        modules = {re.sub(r"(/__init__)?\.py$", "", one).replace("/", ".") for one in level}
        level = {one for one, names in imports.items() if names & modules} - seen
        seen |= level
        tests += sorted(
            (one for one in level if re.search(r"(^|/)test_\w+\.py$", one)),
            key=lambda one: (Path(one).stem != f"test_{Path(path).stem}", len(one)),
        )
    return tests[:FILES]


def killed(checkout: Path, mutant: Mutant) -> str | None:
    """The test file that notices the mutant; None where none does.

    Raises:
        RuntimeError: that file fails without the mutant, too.
    """
    file = checkout / mutant.path
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    row = lines[mutant.line - 1].encode()
    start, end = mutant.column, mutant.column + len(mutant.old.encode())
    lines[mutant.line - 1] = (row[:start] + mutant.new.encode() + row[end:]).decode()
    left, noticed = float(SECONDS), None
    try:
        file.write_text("".join(lines), encoding="utf-8")
        for test in nearest(checkout, mutant.path):
            passed, seconds = _passes(checkout, test, left)
            left -= seconds
            if not passed:
                noticed = test
            if noticed or left <= 0:
                break
    finally:
        file.write_text(text, encoding="utf-8")
    if noticed and not _passes_as_it_is(checkout, noticed):
        raise RuntimeError(f"{noticed} fails in {checkout} without a mutant, too")
    return noticed


@cache
def _passes_as_it_is(checkout: Path, test: str) -> bool:
    return _passes(checkout, test, SECONDS)[0]


def _passes(checkout: Path, test: str, seconds: float) -> tuple[bool, float]:
    """(whether a test file passes, the seconds that took); it does where it takes too long."""
    before = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
               "-m", "not slow and not sweep", test]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=checkout, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return True, seconds
    return done.returncode in (0, 5), time.monotonic() - before


def same_in(checkout: Path, mutant: Mutant, room: str) -> Mutant | None:
    """The same edit in another checkout: in a function of that name, of the same text."""
    paths = [p for p in _imports(checkout) if p.startswith(f"{room}/")]
    for path in sorted(paths, key=lambda one: one != mutant.path):
        for other in mutants(checkout, path):
            if (other.function, other.old, other.new) == (mutant.function, mutant.old, mutant.new):
                return other
    return None


def main(
    count: Annotated[int, typer.Option(min=1, help="Mutants that are drawn.")] = 300,
    seed: Annotated[int, typer.Option(help="Draws them.")] = 0,
    json: Annotated[Path | None, typer.Option(help="What is in it is not tried again.")] = None,
    before: Annotated[Path | None, typer.Option(help="Another checkout, for survivors.")] = None,
    only: Annotated[str, typer.Option(help="Rooms: a,b; default: all.")] = "",
) -> None:
    """Edit the code one place at a time; exit 1 when a test was lost."""
    here = Path(__file__).resolve().parent.parent
    rooms = only.split(",") if only else ROOMS
    paths = sorted(p for p in _imports(here) if p.startswith(tuple(f"{room}/" for room in rooms)))
    every = [mutant for path in paths for mutant in mutants(here, path)]
    drawn = {one.name: one for one in random.Random(seed).sample(every, min(count, len(every)))}

    def measured(name: str) -> dict[str, Any]:
        mutant, found = drawn[name], killed(here, drawn[name])
        result: dict[str, Any] = {"mutant": asdict(mutant), "killed_by": found}
        if found is None and before is not None:
            room = next(room for room in ROOMS if mutant.path.startswith(f"{room}/"))
            same = same_in(before.resolve(), mutant, room)
            result["before"] = "absent" if same is None else killed(before.resolve(), same)
        return result

    lost, dead = [], 0
    for name, result in resumed.each(drawn, measured, json, {"seed": seed}):
        dead += result["killed_by"] is not None
        print(f"{'killed  ' if result['killed_by'] else 'SURVIVED'} {name}", flush=True)
        if result.get("before") not in (None, "absent"):
            lost.append(f"{name}: killed before by {result['before']}")
    print(
        f"{dead} of {len(drawn)} killed by their nearest tests; {len(lost)} lost", *lost, sep="\n"
    )
    raise typer.Exit(int(bool(lost)))


if __name__ == "__main__":
    typer.run(main)
