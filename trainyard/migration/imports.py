"""Import from where SDK v3 has it what a rewritten script uses."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import libcst as cst

from trainyard.migration.facts import code, is_v3
from trainyard.migration.names import MODULES, NAME_MODULES, PLACES


class Imports(cst.CSTTransformer):
    """Rewrites the import statements of the SDK; the first of them gets what is new.

    Args:
        old: the script before it was rewritten.
        new: the script with its imports as they were.
        needed: name of v3 that it has come to use → how it calls it.
    """

    def __init__(self, old: cst.Module, new: cst.Module, needed_names: Mapping[str, str]) -> None:
        super().__init__()
        self._old, self._new = _used(old), _used(new)
        self._needed_names = {
            name: own_name for name, own_name in needed_names.items() if own_name in self._new
        }
        self._waiting = bool(self._needed_names)
        self.kept_names: set[str] = set()
        """Full names of v2 that are still imported."""
        self._depth = 0

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self._depth += 1

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        self._depth -= 1
        return updated_node if updated_node.body else updated_node.with_changes(body=[_pass()])

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel | cst.RemovalSentinel:
        lines = self._lines(updated_node)
        if lines is None:
            return updated_node
        if self._waiting and not self._depth:
            self._waiting = False
            lines = [
                *_write_imports(
                    {(NAME_MODULES[n], n, own_name) for n, own_name in self._needed_names.items()}
                ),
                *lines,
            ]
        if not lines:
            return cst.RemoveFromParent()
        statements = [cst.parse_statement(line) for line in lines]
        first = statements[0].with_changes(leading_lines=updated_node.leading_lines)
        statements = [first, *statements[1:]]
        last = statements[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel([*statements[:-1], last])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if not self._waiting:
            return updated_node
        lines = _write_imports(
            {(NAME_MODULES[n], n, own_name) for n, own_name in self._needed_names.items()}
        )
        new = [cst.parse_statement(line) for line in lines]
        return updated_node.with_changes(body=[*new, *updated_node.body])

    def _lines(self, statement: cst.SimpleStatementLine) -> list[str] | None:
        """Return the statements instead of one that imports from the SDK v2; None for others."""
        if len(statement.body) != 1:
            return None
        node = statement.body[0]
        if isinstance(node, cst.ImportFrom) and node.module and not isinstance(
            node.names, cst.ImportStar
        ):  # fmt: skip
            module = code(node.module)
            if module.split(".")[0] != "sagemaker" or is_v3(module) or node.relative:
                return None
            return self._move_names(module, node.names)
        if isinstance(node, cst.Import):
            return self._modules(node)
        return None

    def _move_names(self, module: str, aliases: Iterable[cst.ImportAlias]) -> list[str]:
        moves: set[tuple[str, str, str]] = set()
        for alias in aliases:
            name = code(alias.name)
            bound = alias.evaluated_alias or name
            full = MODULES.get(f"{module}.{name}")
            if (
                bound in self._old and bound not in self._new
            ) or bound in self._needed_names.values():
                continue
            if full:
                moves.add((full.rpartition(".")[0], full.rpartition(".")[2], bound))
            elif name in PLACES:
                moves.add((PLACES[name], name, bound))
            elif bound in self._new:
                moves.add((module, name, bound))
                self.kept_names.add(f"{module}.{name}")
        return _write_imports(moves)

    def _modules(self, node: cst.Import) -> list[str] | None:
        names = [
            (code(a.name), a.evaluated_alias or code(a.name).split(".")[0], a) for a in node.names
        ]
        sdk_names = [name for name, bound, _ in names if name.split(".")[0] == "sagemaker"]
        if not sdk_names or all(is_v3(name) for name in sdk_names):
            return None
        stay = [
            code(alias).strip().rstrip(",")
            for name, bound, alias in names
            if name not in sdk_names or is_v3(name) or bound in self._new or bound not in self._old
        ]
        return [f"import {', '.join(stay)}"] if stay else []


def _write_imports(names: set[tuple[str, str, str]]) -> list[str]:
    """Return the import statements of (module, name, bound name)."""
    by_module = defaultdict(list)
    for module, name, bound in sorted(names):
        by_module[module].append(name if name == bound else f"{name} as {bound}")
    lines = []
    for module, items in by_module.items():
        line = f"from {module} import {', '.join(items)}"
        if len(line) > 100:
            line = "\n".join([f"from {module} import (", *(f"    {i}," for i in items), ")"])
        lines.append(line)
    return lines


def _pass() -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Pass()])


def _used(module: cst.Module) -> set[str]:
    """Return the names that are read somewhere but in an import."""
    names: set[str] = set()

    class Names(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:
            names.add(node.value)

        def visit_Attribute(self, node: cst.Attribute) -> bool:
            node.value.visit(self)
            return False

        def visit_Arg(self, node: cst.Arg) -> bool:
            node.value.visit(self)
            return False

        def visit_Import(self, node: cst.Import) -> bool:
            return False

        def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
            return False

    module.visit(Names())
    return names
