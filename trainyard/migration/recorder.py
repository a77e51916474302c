"""Run a script until it sends its pipeline to AWS, and write the pipeline's definition to a file.

This file is run by its path under a Python with either SDK, so it imports nothing of Trainyard. For
the script, the clock stands still except while it sleeps, and its UUIDs are the same in every run.
So names that are made of them are the same under both SDKs.
"""

import builtins
import contextlib
import datetime
import hashlib
import importlib
import os
import sys
import time
import traceback
import types
import uuid
from collections.abc import Callable
from typing import Any


# This is a BaseException, because a script may catch every Exception.
class _ScriptEnd(BaseException):
    """Raised to end the script as soon as its pipeline is known."""


_NAMING = ("sagemaker.utils", "sagemaker.core.common_utils")
"""Modules of the SDKs that generate names from the current time."""


class _Clock:
    """A clock that stands still for a script and the modules in its folder, except while they
    sleep.

    Modules that they call see the real time, because they have time-outs, and because the SDK
    distinguishes its uploads by it.
    """

    def __init__(self, timestamp: float, script: str) -> None:
        self._timestamp, self._uuids = timestamp, 0
        self._folder = os.path.dirname(os.path.abspath(script)) + os.sep

    def freeze(self) -> None:
        """Replace what returns the time or a UUID by versions that are the same in every run."""
        timestamp = self._timestamp
        gmtime, localtime, strftime = time.gmtime, time.localtime, time.strftime
        time.gmtime = lambda seconds=None: gmtime(timestamp if seconds is None else seconds)
        time.localtime = lambda seconds=None: localtime(timestamp if seconds is None else seconds)
        time.strftime = lambda form, when=None: strftime(form, when or localtime(timestamp))
        clock, clock_ns, sleep = time.time, time.time_ns, time.sleep
        time.time = lambda: self._timestamp if self._is_called_by_script() else clock()
        time.time_ns = lambda: (
            int(self._timestamp * 1e9) if self._is_called_by_script() else clock_ns()
        )

        def sleep_and_advance(seconds: float, /) -> None:
            """Sleep, and advance the script's clock if the script itself called this."""
            self._timestamp += seconds if self._is_called_by_script() else 0.0
            sleep(seconds)

        setattr(time, "sleep", sleep_and_advance)  # noqa: B010 (of a narrower type)
        uuid.uuid1, uuid.uuid4 = (
            self._number_uuids(uuid.uuid1, 1),
            self._number_uuids(uuid.uuid4, 4),
        )
        self._replace_datetime()

    def _is_called_by_script(self) -> bool:
        """Return whether the script called the replaced function that calls this method, directly
        or through a function of the SDK that generates names.
        """
        # Frame 0 is this method, 1 the replaced function, 2 the caller of the replaced function.
        frame: Any = sys._getframe(2)
        while frame and frame.f_globals.get("__name__") in _NAMING:
            frame = frame.f_back
        return frame is not None and self._is_script(frame.f_code.co_filename)

    def _is_script(self, file: str) -> bool:
        """Return whether a file is in the script's folder and not an installed package."""
        return os.path.abspath(file).startswith(self._folder) and "site-packages" not in file

    def _number_uuids(
        self, real: Callable[..., uuid.UUID], version: int
    ) -> Callable[..., uuid.UUID]:
        """Return a replacement of ``real`` that returns reproducible UUIDs to the script only."""

        def draw(*args: Any) -> uuid.UUID:
            if not self._is_called_by_script():
                return real(*args)
            self._uuids += 1
            digest = hashlib.sha256(str(self._uuids).encode()).digest()
            return uuid.UUID(bytes=digest[:16], version=version)

        return draw

    def _replace_datetime(self) -> None:
        """Make the script import a copy of ``datetime`` whose classes return the frozen time.

        The module itself is not changed, because compiled modules need the real classes.
        """
        module_copy, real = types.ModuleType("datetime"), builtins.__import__
        vars(module_copy).update(vars(datetime), **_make_frozen_dates(lambda: self._timestamp))

        def import_module(name: str, globals: Any = None, *args: Any, **more: Any) -> Any:
            """Import a module as ``__import__`` does; give the script the copy of ``datetime``."""
            module = real(name, globals, *args, **more)
            is_datetime = module is datetime and self._is_script(
                (globals or {}).get("__file__") or ""
            )
            return module_copy if is_datetime else module

        builtins.__import__ = import_module


def _make_frozen_dates(present: Callable[[], float]) -> dict[str, type]:
    """Return subclasses of ``datetime`` and ``date`` whose current time is ``present()``.

    All real datetimes and dates are instances of them as well, so that ``isinstance`` works.
    """

    class Same(type):
        """Metaclass with which all instances of a class's bases count as its instances."""

        def __instancecheck__(cls, instance: Any) -> bool:
            return any(isinstance(instance, base) for base in cls.__bases__)

    class FrozenDatetime(datetime.datetime, metaclass=Same):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(present(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(present(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(present())

    class Day(datetime.date, metaclass=Same):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(present())

    return {"datetime": FrozenDatetime, "date": Day}


def _watch_pipelines() -> list:
    """Return a list to which every pipeline that the script creates later is appended.

    The script ends when it upserts, creates, updates or starts one.
    """
    try:
        module = importlib.import_module("sagemaker.mlops.workflow.pipeline")
    except ImportError:
        module = importlib.import_module("sagemaker.workflow.pipeline")
    Pipeline = module.Pipeline
    pipelines = []
    create = Pipeline.__init__

    def note_pipeline(self: Any, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        pipelines.append(self)

    def stop(self: Any, *args: Any, **kwargs: Any) -> None:
        """Note the pipeline and end the script; replaces ``upsert``, ``start`` and so on."""
        pipelines.append(self)
        raise _ScriptEnd

    Pipeline.__init__ = note_pipeline
    for name in ("upsert", "create", "update", "start"):
        setattr(Pipeline, name, stop)
    return pipelines


def main(script: str, code: str, out: str, timestamp: str) -> None:
    """Run a script, and write the definition of its last pipeline.

    Args:
        script: path of the script.
        code: file with the code to run as if it were in ``script``.
        out: file for the definition.
        timestamp: time that the script sees, in seconds since the epoch.

    Raises:
        ValueError: the script creates no pipeline.
    """
    _Clock(float(timestamp), script).freeze()
    pipelines = _watch_pipelines()
    with open(code, encoding="utf-8") as file:
        program = compile(file.read(), script, "exec")
    # Set path, arguments and ``__main__`` as Python does when it runs the script.
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    sys.argv = [script]
    module = type(sys)("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    with contextlib.suppress(_ScriptEnd):
        exec(program, module.__dict__)
    if not pipelines:
        raise ValueError("the script creates no Pipeline when it runs")
    definition = pipelines[-1].definition()
    with open(out, "w", encoding="utf-8") as file:
        file.write(definition)


def _format_error(failure: Exception, script: str) -> str:
    """Return the error in one line, with the line of the script in which it occurred."""
    frames = traceback.walk_tb(failure.__traceback__)
    lines = [number for frame, number in frames if frame.f_code.co_filename == script]
    location = f"line {lines[-1]}: " if lines else ""
    return f"{location}{type(failure).__name__}: {failure}"


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:]
    try:
        main(*ARGUMENTS)
    except Exception as failure:  # noqa: BLE001 (whatever the script raises)
        with open(ARGUMENTS[2] + ".error", "w", encoding="utf-8") as file:
            file.write(_format_error(failure, ARGUMENTS[0]))
        sys.exit(1)
