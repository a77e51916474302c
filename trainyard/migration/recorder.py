"""Run a script until it hands its pipeline to AWS, and write the pipeline's definition.

Started by path, under a Python with either SDK: it imports nothing of Trainyard. Times that the
script asks for are those of one moment, so that a name pipelines of the time is the same twice.
"""

import contextlib
import importlib
import os
import sys
import time
import traceback
from typing import Any


class _Recorded(BaseException):
    """Ends the script: its pipeline is known."""


def _freeze(moment: float) -> None:
    """Answer every question for the present time with one moment."""
    gmtime, localtime, strftime = time.gmtime, time.localtime, time.strftime
    time.gmtime = lambda seconds=None: gmtime(moment if seconds is None else seconds)
    time.localtime = lambda seconds=None: localtime(moment if seconds is None else seconds)
    time.strftime = lambda form, when=None: strftime(form, when or localtime(moment))


def _watched() -> list:
    """Return the list that gets every pipeline the script makes."""
    try:
        module = importlib.import_module("sagemaker.mlops.workflow.pipeline")
    except ImportError:
        module = importlib.import_module("sagemaker.workflow.pipeline")
    Pipeline = module.Pipeline
    pipelines = []
    create = Pipeline.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        pipelines.append(self)

    def stop(self: Any, *args: Any, **kwargs: Any) -> None:
        pipelines.append(self)
        raise _Recorded

    Pipeline.__init__ = noted
    for name in ("upsert", "create", "update", "start"):
        setattr(Pipeline, name, stop)
    return pipelines


def main(script: str, code: str, out: str, moment: str) -> None:
    """Run ``code`` as if it were ``script``; write the definition to ``out``."""
    pipelines = _watched()
    _freeze(float(moment))
    with open(code, encoding="utf-8") as file:
        program = compile(file.read(), script, "exec")
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    sys.argv = [script]
    module = type(sys)("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    with contextlib.suppress(_Recorded):
        exec(program, module.__dict__)
    if not pipelines:
        raise ValueError("the script makes no Pipeline when it is run")
    definition = pipelines[-1].definition()
    with open(out, "w", encoding="utf-8") as file:
        file.write(definition)


def _error_line(failure: Exception, script: str) -> str:
    """Return the error in a line, with the script's own line where it came about."""
    walked = traceback.walk_tb(failure.__traceback__)
    lines = [number for frame, number in walked if frame.f_code.co_filename == script]
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(failure).__name__}: {failure}"


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:]
    try:
        main(*ARGUMENTS)
    except Exception as failure:  # noqa: BLE001 (whatever the script raises)
        with open(ARGUMENTS[2] + ".error", "w", encoding="utf-8") as file:
            file.write(_error_line(failure, ARGUMENTS[0]))
        sys.exit(1)
