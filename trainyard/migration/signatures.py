"""Hold each call of a moved script against the signatures of the SDK v3 that is installed."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from trainyard.common.errors import DefinitionError
from trainyard.migration.facts import Facts, code, is_v3
from trainyard.migration.rewriting import Remaining

_PROBE = Path(__file__).with_name("signature_probe.py")
UNPACKED_REASON = "its arguments are unpacked from a variable: they were not compared with SDK v3"


@dataclass(frozen=True, slots=True)
class Fit:
    """How the calls of a script fit the installed SDK."""

    sdk: str
    """``sagemaker 3.27.0``; empty if no SDK v3 is installed, and nothing was compared."""
    calls: int
    unfit: tuple[Remaining, ...]
    """Calls and imports that fail, or that could not be compared, by their lines in the script."""


def fit(script: str, python: Path) -> Fit:
    """Compare the calls of SDK v3 in a script, as far as it shows what they call.

    Raises:
        DefinitionError: Python does not start, or the SDK cannot be imported.
    """
    wrapper = MetadataWrapper(cst.parse_module(script))
    calls = Calls(wrapper)
    wrapper.visit(calls)
    questions = [*calls.resolve_calls()]
    if not questions:
        return Fit("", 0, ())
    with tempfile.TemporaryDirectory(prefix="trainyard-migrate-") as folder:
        out = Path(folder) / "answer.json"
        env = {"AWS_DEFAULT_REGION": "us-east-1", **os.environ}
        try:
            process = subprocess.run(
                [python, _PROBE, out], input=json.dumps([call for *_, call in questions]), env=env,
                capture_output=True, text=True, check=False, cwd=folder,
            )  # fmt: skip
        except OSError as failure:
            raise DefinitionError(f"{python}: does not start: {failure}") from None
        if process.returncode:
            last = process.stderr.strip().splitlines()[-1:]
            raise DefinitionError(f"SDK v3 under {python} fails: {''.join(last)}")
        answer = json.loads(out.read_text(encoding="utf-8"))
    if not answer["reasons"]:
        return Fit("", len(questions), ())
    reasons = [UNPACKED_REASON if call["unpacked"] else None for *_, call in questions]
    reasons = [first or second for first, second in zip(answer["reasons"], reasons, strict=True)]
    unfit = {
        Remaining(line, construct, reason)
        for (line, construct, _), reason in zip(questions, reasons, strict=True)
        if reason
    }
    return Fit(f"sagemaker {answer['version']}", len(questions), tuple(sorted(unfit)))


class Calls(cst.CSTVisitor):
    """Collects what a script imports and calls of SDK v3."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, wrapper: MetadataWrapper) -> None:
        super().__init__()
        self._facts = Facts(wrapper)
        self._classes: dict[str, set[str]] = {}
        """Variable → the full names that it is assigned a call of; an empty text for others."""
        self._calls: list[tuple[int, cst.Call]] = []
        self._imports: list[tuple[int, str]] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._classes.setdefault(code(target.target), set()).add(
                self._created_class(node.value)
            )

    def visit_Call(self, node: cst.Call) -> None:
        self._calls.append((self._line(node), node))

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        module = code(node.module) if node.module else ""
        if is_v3(module) and not isinstance(node.names, cst.ImportStar):
            line = self._line(node)
            self._imports += [(line, f"{module}.{code(alias.name)}") for alias in node.names]

    def resolve_calls(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Iterate over (line, code, what the probe gets) of imports and calls."""
        for line, name in self._imports:
            yield line, f"import of {name}", _call_question(name, "", None)
        for line, call in self._calls:
            name, method = "", ""
            if isinstance(call.func, cst.Attribute):
                value, method = call.func.value, call.func.attr.value
                names = self._classes.get(code(value), {self._created_class(value)})
                # Where a variable has objects of two classes, it is not known whose method it is.
                name = min(names) if len(names) == 1 else ""
            if not name:
                name, method = self._facts.sdk_name(call.func) or "", ""
            if is_v3(name):
                yield line, code(call.func), _call_question(name, method, call)

    def _created_class(self, value: cst.BaseExpression) -> str:
        return (self._facts.sdk_name(value.func) or "") if isinstance(value, cst.Call) else ""

    def _line(self, node: cst.CSTNode) -> int:
        place: Any = self.get_metadata(PositionProvider, node)
        return place.start.line


def _call_question(name: str, method: str, call: cst.Call | None) -> dict[str, Any]:
    arguments = call.args if call else ()
    is_unpacked = any(argument.star for argument in arguments)
    return {
        "name": name,
        "method": method,
        "positional": None if call is None or is_unpacked
        else sum(argument.keyword is None for argument in arguments),
        "keywords": [a.keyword.value for a in arguments if a.keyword],
        "unpacked": is_unpacked,
    }  # fmt: skip
