"""Check a requirements file against the installed packages; pip would take seconds.

python3 -m steps.installed requirements.txt      # exit status 0: all as required
"""

import logging
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainyard.common.errors import TrainyardError
from trainyard.common.process import die_with_parent


def iter_differences(requirements: Path) -> Iterator[str]:
    """Yield a message for each requirement that is not satisfied, or that only pip can check."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ModuleNotFoundError:
        yield "packaging is not installed, so pip has to check"
        return
    text = requirements.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        try:
            requirement = Requirement(line.partition(" --hash")[0])
        except InvalidRequirement:
            yield f"only pip can parse {line}"
            continue
        if requirement.extras or requirement.url:
            yield f"only pip can resolve {requirement}"
        elif requirement.marker is None or requirement.marker.evaluate():
            try:
                installed_version = version(requirement.name)
            except PackageNotFoundError:
                yield (
                    f"{requirement.name} is not installed, required is "
                    f"{requirement.specifier or 'any'}"
                )
                continue
            if not requirement.specifier.contains(installed_version, prereleases=True):
                yield (
                    f"{requirement.name} {installed_version} is installed, required is "
                    f"{requirement.specifier}"
                )


# A worker process of a job, with a pipe. The job detects at once when the worker ends, and the
# worker ends with the job.
#
# It is spawned: a fork would copy locks that threads hold (torch's, Arrow's, the tokenizer's). A
# fork server would be a process between the job and its workers, but they must die with the job.

SPAWN = multiprocessing.get_context("spawn")


class WorkerProcess:
    """A process that runs ``work(pipe, *arguments)``; an exception in it is sent through the pipe.

    Args:
        work: a function of a module, with arguments that can be pickled.
    """

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self.pipe, child_pipe = SPAWN.Pipe()
        process_arguments = (child_pipe, work, arguments)
        self._process = SPAWN.Process(target=_run_work, args=process_arguments, daemon=True)
        self._process.start()
        child_pipe.close()  # otherwise the pipe would stay open when the process ends

    def send(self, message: Any) -> None:
        """Send a message. Do nothing if the process is dead, because ``receive`` reports that."""
        with suppress(OSError):
            self.pipe.send(message)

    def receive(self, explain_death: Callable[[str], str]) -> Any:
        """Return the process's next message.

        Args:
            explain_death: function that returns the error message, given how the process ended,
                such as ``SIGKILL``.

        Raises:
            TrainyardError: ``work`` raised it, or the process is dead.
            RuntimeError: a bug; contains the process's traceback.
        """
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode or 0
            end = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise TrainyardError(explain_death(end)) from None
        if isinstance(message, Exception):
            raise message
        return message

    def end(self) -> None:
        """Kill the process, and wait until it has ended."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _run_work(pipe: Connection, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Run ``work`` in the new process, and send an exception that it raises through the pipe."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which then ends us
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    try:
        work(pipe, *arguments)
    except TrainyardError as error:
        pipe.send(error)
    except Exception:  # noqa: BLE001 (the job raises it again, with this traceback)
        pipe.send(RuntimeError(traceback.format_exc()))


if __name__ == "__main__":
    mismatches = list(iter_differences(Path(sys.argv[1])))
    for difference in mismatches:
        print(f"packages: {difference}", file=sys.stderr)
    sys.exit(bool(mismatches))
