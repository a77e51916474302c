"""Prove that a moved script does what the old one did: compile both, and compare the definitions.

Each script runs against an emulator of its own, under a Python with its SDK.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.emulator.client_environment import foreign
from trainyard.emulator.server import serve
from trainyard.equality.observed_run import Setting, content_digest
from trainyard.equality.static_comparison import Answer, Cause, decide
from trainyard.validate import refuse_errors

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
