"""The edits that can be made in a checkout's code, and the same edit in another checkout."""

import ast
import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = (
    "conditions",
    "training",
    "trainyard/emulator/dag",
    "trainyard/emulator/sagemaker/pipelines",
    "trainyard/plan",
    "trainyard/validate",
)
"""Folders, those of earlier commits too: emulator/pipelines was emulator/dag."""
TURNED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip
_moments = itertools.count(1_700_000_000)
"""Modification times of edits, a second each, because Python compares bytecode by them."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: in ``function`` of ``path`` the text ``old`` becomes ``new``."""

    path: str
    function: str
    line: int
    column: int
    old: str
    new: str
    row: str
    """The whole line, as it was."""
    statement: int
    """The line where the innermost statement around it begins; of a signature the body's first."""

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.old!r} -> {self.new!r}"


@functools.cache
def list_mutants(checkout: Path) -> list[Mutant]:
    """Return every edit that can be made in the functions of a checkout's folders ``ROOMS``."""
    files = [file for room in ROOMS for file in checkout.glob(f"{room}/**/*.py")]
    paths = [str(file.relative_to(checkout)) for file in sorted(files)]
    return [mutant for path in paths for mutant in iter_mutants(checkout, path)]


def iter_mutants(checkout: Path, path: str) -> Iterator[Mutant]:
    """Yield every edit that can be made in one file's functions."""
    whole = (checkout / path).read_bytes()
    rows = whole.splitlines()
    for function in ast.walk(ast.parse(whole)):
        if isinstance(function, ast.FunctionDef):
            begins = _map_statement_lines(function)
            for node in ast.walk(function):
                new = _edit_node_text(node)
                if new and node.lineno == node.end_lineno:  # type: ignore[attr-defined]
                    line, start, end = node.lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
                    row, first = rows[line - 1], begins.get(line, begins[function.lineno])
                    old, text = row[start:end].decode(), row.strip().decode()
                    yield Mutant(path, function.name, line, start, old, new, text, first)


def _map_statement_lines(function: ast.FunctionDef) -> dict[int, int]:
    """Map each line of a function to the one where the innermost statement around it begins."""
    first = function.body[bool(ast.get_docstring(function, clean=False)) and len(function.body) > 1]
    inner = [node for node in ast.walk(function) if isinstance(node, ast.stmt)][1:]
    begins = dict.fromkeys(range(function.lineno, function.body[0].lineno + 1), first.lineno)
    for node in inner:  # the outer ones come first
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        begins |= dict.fromkeys(lines, node.lineno)
    return begins


def _edit_node_text(node: ast.AST) -> str | None:
    """Return the edited text of a node; None if it has no edit."""
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


def find_same_mutant(mutant: Mutant, checkout: Path) -> Mutant | None:
    """Return the same edit in another checkout: same text, name of the function, and top folder.

    Of several it is the one whose line reads the same, then the one in a file of that name.
    """
    house = Path(mutant.path).parts[0]
    wanted = (house, mutant.function, mutant.old, mutant.new)

    def differs(one: Mutant) -> tuple[bool, bool, int]:
        return one.row != mutant.row, one.path != mutant.path, abs(one.line - mutant.line)

    found = (
        one
        for one in list_mutants(checkout)
        if (Path(one.path).parts[0], one.function, one.old, one.new) == wanted
    )
    return min(found, key=differs, default=None)


@contextlib.contextmanager
def apply_mutant(mutant: Mutant, checkout: Path) -> Iterator[None]:
    """Make the edit in a checkout's file; restore the file at the end."""
    file = checkout / mutant.path
    whole, was = file.read_bytes(), file.stat()
    lines = whole.splitlines(keepends=True)
    row, end = lines[mutant.line - 1], mutant.column + len(mutant.old.encode())
    lines[mutant.line - 1] = row[: mutant.column] + mutant.new.encode() + row[end:]
    try:
        file.write_bytes(b"".join(lines))
        os.utime(file, (next(_moments),) * 2)
        yield
    finally:
        file.write_bytes(whole)
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
