"""Hold each call of a moved script against the signatures of the SDK v3 that is installed."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from trainyard.common.errors import DefinitionError
from trainyard.emulator.client_environment import foreign
from trainyard.emulator.server import serve
from trainyard.equality.observed_run import Setting, content_digest
from trainyard.equality.static_comparison import Answer, Cause, decide
from trainyard.migration.facts import Facts, code, is_v3
from trainyard.migration.rewriting import Remaining
from trainyard.validate import refuse_errors

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


# Prove that a moved script does what the old one did: compile both, and compare the definitions.
#
# Each script runs against an emulator of its own, under a Python with its SDK.

_RECORDER = Path(__file__).with_name("recorder.py")
_LINE_LIMIT = 5


@dataclass(frozen=True, slots=True)
class CompiledScript:
    """A script's definition, and what S3 held after the script: URI → file."""

    definition: Mapping[str, Any]
    objects: Mapping[str, Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """How the two scripts are run and compared."""

    script: Path
    old_python: Path
    new_python: Path
    puts: Mapping[str, Path] = field(default_factory=dict)
    """URI in S3 → file that both scripts find there."""
    static: bool = False
    """Execute neither definition."""
    twice: bool = False
    """Execute the old one twice, to know which jobs are not deterministic."""


def prove(old: str, new: str, sides: Sides) -> Answer:
    """Return what ``trainyard equal`` answers about the definitions of two scripts.

    Raises:
        DefinitionError: a script fails, makes no pipeline, or one that SageMaker would refuse.
        EmulatorError: the emulator cannot start here.
    """
    with tempfile.TemporaryDirectory(prefix="trainyard-migrate-") as folder:
        work_folder, moment = Path(folder), time.time()
        # One moment for both: names are made of the time.
        first = compile_script(old, sides.old_python, sides, work_folder / "old", moment)
        second = compile_script(new, sides.new_python, sides, work_folder / "new", moment)
        for uri in first.objects.keys() & second.objects.keys():
            digests = [content_digest(side.objects[uri], uri) for side in (first, second)]
            if digests[0] != digests[1]:
                description = f"object {uri}, which the script uploads"
                cause = Cause(step="", what=description, first=digests[0], second=digests[1])
                return Answer(cause=cause, evidence="not executed: the scripts upload other files")
        setting = Setting({**first.objects, **second.objects}, {}, sides.new_python)
        return decide(
            first.definition, second.definition, setting, static=sides.static, twice=sides.twice
        )


def compile_script(
    code: str, python: Path, sides: Sides, work_folder: Path, moment: float
) -> CompiledScript:
    """Run a script under a Python until its pipeline is known.

    Raises:
        DefinitionError: it fails, makes no pipeline, or one that SageMaker would refuse.
    """
    work_folder.mkdir(parents=True)
    source, out = work_folder / "script.py", work_folder / "definition.json"
    source.write_text(code, encoding="utf-8")
    with serve(work_folder / "state") as endpoint:
        for uri, path in sides.puts.items():
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            endpoint.app.objects.create_bucket(bucket)
            endpoint.app.objects.put_file(bucket, key, path)
        script = sides.script.resolve()
        foreign_names = foreign(os.environ, endpoint.env)
        env = {k: v for k, v in os.environ.items() if k not in foreign_names} | endpoint.env
        command = [python, _RECORDER, script, source, out, str(moment)]
        process = subprocess.run(
            command, cwd=script.parent, env=env, capture_output=True, text=True, check=False
        )
        if process.returncode or not out.exists():
            message = work_folder / "definition.json.error"
            last = "\n  ".join(process.stderr.strip().splitlines()[-_LINE_LIMIT:])
            reason = message.read_text(encoding="utf-8") if message.exists() else last
            raise DefinitionError(f"{script.name} under {python} fails: {reason}")
        objects = {
            f"s3://{bucket}/{info.key}": Path(endpoint.app.objects.path(bucket, info.key))
            for bucket, _ in endpoint.app.objects.buckets()
            for info in endpoint.app.objects.list(bucket)
        }
    definition = out.read_text(encoding="utf-8")
    refuse_errors(definition, f"the definition that {script.name} makes under {python}")
    return CompiledScript(json.loads(definition), objects)
