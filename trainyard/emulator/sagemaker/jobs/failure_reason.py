"""Build the FailureReason of a job, with the cause first and short."""

import ast
import json
import re
import signal
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from trainyard.common.log_lines import STANDS_IN
from trainyard.common.safe_unpack import unpack_tar
from trainyard.emulator.algorithms.xgboost.facts import SCRIPT
from trainyard.emulator.containers.cluster import Exit
from trainyard.emulator.containers.isolation import store_bytecode
from trainyard.emulator.containers.node import (
    Node,
    find_installed_packages,
    find_missing_and_uncompiled_modules,
)
from trainyard.emulator.request_scope import ApiError
from trainyard.image_packages import find_image, list_differences

LIMIT = 1024  # characters, SageMaker's limit for FailureReason
TAIL = 3  # log lines to show when none of them is an exception

_RANK = re.compile(r"^\s*\[(?:rank)?\d+\]:\s?|^\[algo-\d+\]:?\s?")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b(:.*)?$")
_LAUNCHER = (
    *("CalledProcessError", "ChildFailedError", "SignalException", "SystemExit"),
    # InstallRequirementsError of AWS's toolkits has only pip's command line; pip's own lines in the
    # log say why.
    "InstallRequirementsError",
)
_LACKS = "No matching distribution found for "
_PIP = re.compile(rf"ERROR: ({_LACKS}.+)").search
OFFLINE = (
    "jobs have no network here: install it for the interpreter that --python names, or give "
    "jobs network access with --internet"
)
"""Advice if pip did not find a package."""
_FULL = "no space left on device"  # the engines' spelling (Go); Python writes a capital N
_PRUNE = (
    "the disk on which the container engine keeps its containers is full: run docker system prune"
)
_PEER = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "DistNetwork")
"""Texts in the errors of a rank whose peer has died. They are a consequence, so they are shown only
if there is no other error.
"""
_SIGNAL = re.compile(r"Signal \d+ \(SIG\w+\) received by PID \d+")
"""Message in torchrun's root cause if a worker was killed."""
_NOISE = re.compile(r"^(\++ |Command failed with exit code|An error occurred with exit code|\s*$)")
_NATIVE = re.compile(
    r"Stack trace:$|\[bt\] \(\d+\)|"
    r"Exception raised from .* \(most recent call first\):$|C\+\+ CapturedTraceback:$|"
    r"frame #\d+: |#\d+ .+ from .+:\d+$|<omitting python frames>$|"
    r"\S+\(\S*\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]$"
)
"""A line of a C++ stack trace, or its heading."""
_DRIVER = (
    *("subprocess.CalledProcessError", "Training Execution failed"),
    "InstallRequirementsError",
    'ErrorMessage ""',  # the sagemaker-training toolkit, when it did not capture the script's error
)


def format_failure_reason(
    end: Exit, message: str, logs: Mapping[str, Sequence[str]], hint: str = OFFLINE
) -> str:
    """Return the FailureReason in AWS's form, ``AlgorithmError: ..., exit code: N``, of at most
    1,024 characters.

    ``message`` is what the job left in ``/opt/ml/output/failure`` (or ``message``). ``logs`` has
    the last lines of each node's log. ``hint`` is the advice if pip did not find a package.
    """
    # AWS's drivers leave only their own CalledProcessError as a message: the last exception in the
    # log says more.
    by_driver = any(mark in message for mark in _DRIVER)
    own_message = remove_native_frames(message) if not by_driver else ""
    cause = _add_hint(own_message, hint) if own_message else select_excerpt(end.node, logs, hint)
    ending = format_ending(end)
    room = LIMIT - len(f"AlgorithmError: , {ending}")
    return f"AlgorithmError: {shorten_text(cause, room)}, {ending}"


def remove_native_frames(text: str) -> str:
    """Return the text without the C++ stack traces that some Python exceptions contain.

    The traces are longer than the cause. The known formats are dmlc's (XGBoost), c10's (torch) and
    glibc's.
    """
    return "\n".join(line for line in text.splitlines() if not _is_native(line)).strip()


def _is_native(line: str) -> bool:
    return bool(_NATIVE.match(_RANK.sub("", line).strip()))


def format_ending(end: Exit) -> str:
    """Return ``exit code: N``, preceded by the node and the signal if a signal ended the
    process.
    """
    if end.status < 0:
        name = signal.Signals(-end.status).name
        return (
            f"{end.node} was killed by signal {-end.status} ({name}), exit code: {128 - end.status}"
        )
    # A shell reports a signal as 128 + its number.
    if end.status > 128 and end.status - 128 in set(signal.Signals):
        name = signal.Signals(end.status - 128).name
        return f"a process of {end.node} was killed by {name}, exit code: {end.status}"
    return f"exit code: {end.status}"


def select_excerpt(first: str, logs: Mapping[str, Sequence[str]], hint: str = OFFLINE) -> str:
    """Return the log's best explanation: the exception that ended the job, else the package that
    pip did not find, else the last lines.

    ``first`` is the node whose log is examined first.
    """
    nodes = [first, *(name for name in logs if name != first)]
    errors = [(name, text) for name in nodes for text in _list_exceptions(logs.get(name, ()))]
    own_errors = [pair for pair in errors if not any(mark in pair[1] for mark in _PEER)]
    signals = [(n, m[0]) for n in nodes for line in logs.get(n, ()) if (m := _SIGNAL.search(line))]
    pip = [(n, m[1]) for n in nodes for line in logs.get(n, ()) if (m := _PIP(line))]
    # The most informative comes first: an exception that is not a consequence, then pip's message,
    # then a signal, and last the errors caused by the death of a peer.
    for name, text in own_errors or pip or signals or errors:
        hinted_text = _add_hint(text, hint)
        return hinted_text if len(logs) == 1 else f"{hinted_text} ({name})"
    log_lines = (line for line in logs.get(first, ()) if not _is_native(line))
    lines = [line.strip() for line in log_lines if not _NOISE.match(line)]
    return " | ".join(lines[-TAIL:])


def explain_start_failure(node: str, logs: Mapping[str, Sequence[str]]) -> str:
    """Return why the container engine could not start a container: its message, and what to do if
    the disk is full.
    """
    text = select_excerpt(node, logs)
    return f"{_PRUNE} ({text})" if _FULL in text else text


def _add_hint(text: str, hint: str) -> str:
    """Return the text, with the hint if it quotes pip's message about a missing package."""
    return f"{text}; {hint}" if hint and _LACKS in text else text


def _list_exceptions(lines: Sequence[str]) -> list[str]:
    """Return the lines that name an exception, the last one first, without those of launchers."""
    texts = [_RANK.sub("", line).strip() for line in reversed(lines)]
    matches = [text for text in texts if _EXCEPTION.match(text)]
    return [text for text in matches if not any(mark in text for mark in _LAUNCHER)]


def shorten_text(text: str, room: int) -> str:
    """Return ``text`` in at most ``room`` characters, cut in the middle: the start and the end of a
    traceback are the most useful parts.
    """
    if len(text) <= room:
        return text
    head = room // 3
    # 5 is the length of " ... ".
    return f"{text[:head]} ... {text[-(room - head - 5) :]}"


# Packages that a job's script imports: those that the interpreter lacks, and those whose version
# differs from the image's. Both are only reported, before the job starts, because a script may
# install a package itself before it imports it, and AWS's drivers install what requirements.txt
# names. Only imports that always happen when a script starts are examined, not those in functions
# or in ``try``: those of the script, and of the modules that it imports from its own folder or from
# one above.

_SCRIPT = re.compile(r"/opt/ml/[\w./-]+\.(?:py|sh)\b")
_SDK = "/opt/ml/input/data/sm_drivers/sourcecode.json"
"""File in which the SageMaker SDK v3 names the script that its driver starts."""
_HYPERPARAMETERS = "/opt/ml/input/config/hyperparameters.json"
_ARCHIVE = "sagemaker_submit_directory"
"""Hyperparameter with which the SDK names the script's archive for AWS's toolkit."""
_PYTHON_COMMAND = re.compile(r"^python3? (?P<script>[\w./-]+\.py)\b", re.MULTILINE)
"""Line of a FrameworkProcessor's runproc.sh that starts the script. runproc.sh unpacks
sourcedir.tar.gz in its own folder.
"""
_LARGEST = 2**26
"""Maximum size in bytes of an archive that is unpacked to read its scripts."""

_PARSING = threading.Lock()
"""Lock around parsing. CPython 3.11 counts the depth of a syntax tree for all threads together, and
two threads that parse at the same time may get a SystemError.
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A script that a job starts."""

    name: str
    imports: frozenset[str]
    """Names of the top-level packages that it imports, without the standard library and the modules
    in its own folders.
    """

    installs: str = ""
    """Content of the requirements.txt next to the script."""


def find_scripts(node: Node, source: Callable[[str], Path]) -> list[Script]:
    """Return the scripts that the node's command, AWS's drivers or AWS's toolkit start.

    ``source(uri)`` returns the file of an object in S3.
    """
    job_scripts = [_read_script(script, node.ml) for script in _iter_named_files(node)]
    for archive, name in _iter_named_archives(node, source):
        # If the archive cannot be read, the job itself will fail.
        with TemporaryDirectory() as folder, suppress(OSError, tarfile.TarError):
            if archive.stat().st_size <= _LARGEST:
                with tarfile.open(archive) as tar:
                    unpack_tar(tar, Path(folder))
                if (Path(folder) / name).is_file():
                    job_scripts.append(_read_script(Path(folder) / name, Path(folder)))
    return job_scripts


def list_import_warnings(node: Node, job_scripts: list[Script]) -> list[str]:
    """Return one line for each script that imports a missing package and has no requirements.txt.

    Also compile the imported packages that have no bytecode.
    """
    lines = []
    for script in job_scripts:
        if not script.imports or script.installs:
            continue
        missing, uncompiled_modules = find_missing_and_uncompiled_modules(
            node.python, script.imports
        )
        store_bytecode(node.python, uncompiled_modules)
        if missing:
            lines.append(
                f"{script.name} imports {', '.join(missing)}, which {node.python} lacks: install "
                "it there, or name an interpreter that has it with --python PATH"
            )
    return lines


def format_version_notice(python: Path, image: str, imports: set[str], installs: str = "") -> str:
    """Return one line with the imported packages whose version differs from that in AWS's image.

    Return an empty string if there are none. ``installs`` is the text of the requirements that the
    job installs itself; they are not compared.
    """
    image_record = find_image(image)
    if not image_record or not imports:
        return ""
    requirements = {
        name.lower().replace("_", "-") for name in re.findall(r"(?m)^[\w.-]+", installs)
    }
    version, versions = find_installed_packages(python, set(image_record.packages) - requirements)
    rows = list_differences(image_record, version, versions, imports)
    return f"{STANDS_IN} {image_record.name}: {', '.join(rows)}" if rows else ""


def read_imports(script: Path, top: Path) -> set[str]:
    """Return the packages that a script imports. Modules in folders at or below ``top`` are the
    script's own and are left out.
    """
    return _collect_imports(script, [path for path in script.parents if path.is_relative_to(top)])


def _read_script(script: Path, top: Path) -> Script:
    requirements = script.with_name("requirements.txt")
    installs = requirements.read_text(errors="replace") if requirements.is_file() else ""
    return Script(script.name, frozenset(read_imports(script, top)), installs)


def _iter_named_files(node: Node) -> Iterator[Path]:
    """Iterate over the Python files that the job's command names or AWS's driver starts."""
    names = [name for name in _SCRIPT.findall(" ".join(node.command)) if name.endswith(".py")]
    if (about := node.to_host_path(_SDK)).is_file():
        entry = json.loads(about.read_text()).get("entry_script")
        names += [f"/opt/ml/input/data/code/{entry}"] if entry else []
    for path in dict.fromkeys(names):
        if (script := node.to_host_path(path)).is_file():
            yield script


def _iter_named_archives(node: Node, source: Callable[[str], Path]) -> Iterator[tuple[Path, str]]:
    """Iterate over pairs (archive, script in it) that AWS's toolkit or a runproc.sh unpacks."""
    if (config := node.to_host_path(_HYPERPARAMETERS)).is_file():
        hyperparameters = json.loads(config.read_text())
        uri, script = (str(hyperparameters.get(name, "")).strip('"') for name in (_ARCHIVE, SCRIPT))
        if script and uri.startswith("s3://"):
            with suppress(ApiError, OSError):  # the toolkit itself will fail
                yield source(uri), script
    for name in _SCRIPT.findall(" ".join(node.command)):
        shell = node.to_host_path(name)
        archive = node.to_host_path("/opt/ml/processing/input/code/sourcedir.tar.gz")
        if name.endswith(".sh") and shell.is_file() and archive.is_file():
            for match in _PYTHON_COMMAND.finditer(shell.read_text(errors="replace")):
                yield archive, match["script"]


def _collect_imports(script: Path, roots: list[Path]) -> set[str]:
    """Return the top-level packages that the script imports, without the standard library. Modules
    in ``roots`` are replaced by the packages that they import.
    """
    packages, visited_paths, queue = set(), set(), [script]
    while queue:
        module = queue.pop()
        visited_paths.add(module)
        for name in _iter_imports(module):
            local = [path for root in roots for path in (root / f"{name}.py", root / name)]
            if local := [path for path in local if path.exists()]:
                files = [path / "__init__.py" if path.is_dir() else path for path in local]
                queue += [path for path in files if path.is_file() and path not in visited_paths]
            elif name not in sys.stdlib_module_names:
                packages.add(name)
    return packages


def _iter_imports(module: Path) -> Iterator[str]:
    """Iterate over the names of packages that are always imported with ``module``."""
    try:
        with _PARSING:
            tree = ast.parse(module.read_bytes())
    except (SyntaxError, ValueError):  # the job itself will report it
        return
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
