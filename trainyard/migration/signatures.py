"""Check a migrated script: compare its calls with the signatures of the installed SDK v3, and the
pipeline definition that it creates with that of the old script.
"""

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
from trainyard.emulator.client_environment import list_conflicting_variables
from trainyard.emulator.server import serve_emulator
from trainyard.equality.observed_run import Setting, hash_content
from trainyard.equality.static_comparison import Difference, EqualityResult, decide_equality
from trainyard.migration.facts import Facts, is_v3, render_code
from trainyard.migration.rewriting import UnmigratedCode
from trainyard.validate import refuse_errors

_PROBE = Path(__file__).with_name("signature_probe.py")
UNPACKED_REASON = "its arguments are unpacked from a variable: they were not compared with SDK v3"


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """Result of comparing the calls of a script with the installed SDK."""

    sdk: str
    """The SDK, such as ``sagemaker 3.27.0``; empty if nothing was compared, because no SDK v3 is
    installed or the script does not call it."""
    calls: int
    """Number of imports and calls of SDK v3."""
    unfit: tuple[UnmigratedCode, ...]
    """Calls and imports that would fail, or could not be compared, sorted by line."""


def check_signatures(script: str, python: Path) -> SignatureCheck:
    """Compare the calls of SDK v3 in a script with the SDK that is installed under ``python``.

    Calls of objects whose class cannot be seen in the script are not compared.

    Raises:
        DefinitionError: ``python`` does not start, or the SDK cannot be imported.
    """
    wrapper = MetadataWrapper(cst.parse_module(script))
    calls = CallCollector(wrapper)
    wrapper.visit(calls)
    questions = [*calls.iter_questions()]
    if not questions:
        return SignatureCheck("", 0, ())
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
        return SignatureCheck("", len(questions), ())
    reasons = [UNPACKED_REASON if call["unpacked"] else None for *_, call in questions]
    reasons = [first or second for first, second in zip(answer["reasons"], reasons, strict=True)]
    unfit = {
        UnmigratedCode(line, construct, reason)
        for (line, construct, _), reason in zip(questions, reasons, strict=True)
        if reason
    }
    return SignatureCheck(f"sagemaker {answer['version']}", len(questions), tuple(sorted(unfit)))


class CallCollector(cst.CSTVisitor):
    """Collects the imports and calls of SDK v3 in a script."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, wrapper: MetadataWrapper) -> None:
        super().__init__()
        self._facts = Facts(wrapper)
        self._classes: dict[str, set[str]] = {}
        """Mapping of a variable to the full names of the classes or functions whose results are
        assigned to it; an empty name for any other value."""
        self._calls: list[tuple[int, cst.Call]] = []
        self._imports: list[tuple[int, str]] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._classes.setdefault(render_code(target.target), set()).add(
                self._find_created_class(node.value)
            )

    def visit_Call(self, node: cst.Call) -> None:
        self._calls.append((self._find_line(node), node))

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        module = render_code(node.module) if node.module else ""
        if is_v3(module) and not isinstance(node.names, cst.ImportStar):
            line = self._find_line(node)
            self._imports += [(line, f"{module}.{render_code(alias.name)}") for alias in node.names]

    def iter_questions(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Iterate over (line, code, question for the probe) of imports and calls."""
        for line, name in self._imports:
            yield line, f"import of {name}", _build_probe_question(name, "", None)
        for line, call in self._calls:
            name, method = "", ""
            if isinstance(call.func, cst.Attribute):
                value, method = call.func.value, call.func.attr.value
                names = self._classes.get(render_code(value), {self._find_created_class(value)})
                # If a variable gets objects of two classes, the method's class is not known.
                name = min(names) if len(names) == 1 else ""
            if not name:
                name, method = self._facts.find_sdk_name(call.func) or "", ""
            if is_v3(name):
                yield line, render_code(call.func), _build_probe_question(name, method, call)

    def _find_created_class(self, value: cst.BaseExpression) -> str:
        """Return the full name of the SDK's function or class that ``value`` calls; else empty."""
        return (self._facts.find_sdk_name(value.func) or "") if isinstance(value, cst.Call) else ""

    def _find_line(self, node: cst.CSTNode) -> int:
        code_range: Any = self.get_metadata(PositionProvider, node)
        return code_range.start.line


def _build_probe_question(name: str, method: str, call: cst.Call | None) -> dict[str, Any]:
    """Return the question for ``signature_probe.explain_failure`` about a call, or about an import
    if ``call`` is None.
    """
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


# Prove that a migrated script does what the old one did: run both until their pipeline definitions
# are known ("compile" them), and compare the definitions.
#
# Each script runs with its own emulator, under a Python with the SDK that it needs.

_RECORDER = Path(__file__).with_name("recorder.py")
_LINE_LIMIT = 5


@dataclass(frozen=True, slots=True)
class CompiledScript:
    """The pipeline definition that a script creates, and the objects in S3 after its run."""

    definition: Mapping[str, Any]
    objects: Mapping[str, Path]
    """Mapping of an object's URI to the file with its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """Settings for running and comparing the old and the new script."""

    script: Path
    """Path of the user's script, in whose folder both are run."""
    old_python: Path
    """Python with SDK v2."""
    new_python: Path
    """Python with SDK v3."""
    puts: Mapping[str, Path] = field(default_factory=dict)
    """Mapping of an S3 URI to the file that is put there before each script runs."""
    static: bool = False
    """Compare the definitions without executing them."""
    twice: bool = False
    """Execute the old definition twice, to find out which jobs are not deterministic."""


def prove_equality(old: str, new: str, settings: ComparisonSettings) -> EqualityResult:
    """Compare the pipeline definitions of two scripts as ``trainyard equal`` does.

    If the scripts upload different content to the same URI, return that difference without
    executing anything.

    Args:
        old: text of the old script.
        new: text of the new script.
        settings: how to run and compare them.

    Raises:
        DefinitionError: a script fails, or creates no pipeline or one that SageMaker would refuse.
        EmulatorError: the emulator cannot start here.
    """
    with tempfile.TemporaryDirectory(prefix="trainyard-migrate-") as folder:
        work_folder, timestamp = Path(folder), time.time()
        # Both scripts get the same time, because the SDK generates names from it.
        first = compile_script(old, settings.old_python, settings, work_folder / "old", timestamp)
        second = compile_script(new, settings.new_python, settings, work_folder / "new", timestamp)
        for uri in first.objects.keys() & second.objects.keys():
            digests = [hash_content(side.objects[uri], uri) for side in (first, second)]
            if digests[0] != digests[1]:
                description = f"object {uri}, which the script uploads"
                cause = Difference(step="", what=description, first=digests[0], second=digests[1])
                return EqualityResult(
                    cause=cause, evidence="not executed: they upload different files"
                )
        setting = Setting({**first.objects, **second.objects}, {}, settings.new_python)
        return decide_equality(
            first.definition,
            second.definition,
            setting,
            static=settings.static,
            twice=settings.twice,
        )


def compile_script(
    code: str, python: Path, settings: ComparisonSettings, work_folder: Path, timestamp: float
) -> CompiledScript:
    """Run a script until its pipeline definition is known.

    Args:
        code: text of the script.
        python: Python to run it under.
        settings: folder to run it in, and files to put into S3.
        work_folder: new folder for the emulator's state and temporary files.
        timestamp: time that the script sees, in seconds since the epoch.

    Raises:
        DefinitionError: it fails, or creates no pipeline or one that SageMaker would refuse.
    """
    work_folder.mkdir(parents=True)
    source, out = work_folder / "script.py", work_folder / "definition.json"
    source.write_text(code, encoding="utf-8")
    with serve_emulator(work_folder / "state") as endpoint:
        for uri, path in settings.puts.items():
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            endpoint.app.objects.create_bucket(bucket)
            endpoint.app.objects.put_file(bucket, key, path)
        script = settings.script.resolve()
        foreign_names = list_conflicting_variables(os.environ, endpoint.env)
        env = {k: v for k, v in os.environ.items() if k not in foreign_names} | endpoint.env
        command = [python, _RECORDER, script, source, out, str(timestamp)]
        process = subprocess.run(
            command, cwd=script.parent, env=env, capture_output=True, text=True, check=False
        )
        if process.returncode or not out.exists():
            message = work_folder / "definition.json.error"
            last = "\n  ".join(process.stderr.strip().splitlines()[-_LINE_LIMIT:])
            reason = message.read_text(encoding="utf-8") if message.exists() else last
            raise DefinitionError(f"{script.name} under {python} fails: {reason}")
        objects = {
            f"s3://{bucket}/{info.key}": Path(endpoint.app.objects.locate_file(bucket, info.key))
            for bucket, _ in endpoint.app.objects.list_buckets()
            for info in endpoint.app.objects.list(bucket)
        }
    definition = out.read_text(encoding="utf-8")
    refuse_errors(definition, f"the definition that {script.name} creates under {python}")
    return CompiledScript(json.loads(definition), objects)
