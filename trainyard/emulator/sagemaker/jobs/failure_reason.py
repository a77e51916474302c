"""FailureReason of a job: the cause, first and short."""

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
from trainyard.common.safe_unpack import unpack
from trainyard.emulator.algorithms.xgboost.facts import SCRIPT
from trainyard.emulator.containers.cluster import Exit
from trainyard.emulator.containers.isolation import keep_bytecode
from trainyard.emulator.containers.node import Node, find_modules, installed_packages
from trainyard.emulator.request_scope import ApiError
from trainyard.image_packages import differences, known_image

LIMIT = 1024  # characters, SageMaker's limit for FailureReason
TAIL = 3  # log lines to show when none of them is an exception

_RANK = re.compile(r"^\s*\[(?:rank)?\d+\]:\s?|^\[algo-\d+\]:?\s?")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b(:.*)?$")
_LAUNCHER = (
    *("CalledProcessError", "ChildFailedError", "SignalException", "SystemExit"),
    "InstallRequirementsError",  # of AWS's toolkits, with pip's command: pip's own lines say why
)
_LACKS = "No matching distribution found for "
_PIP = re.compile(rf"ERROR: ({_LACKS}.+)").search
OFFLINE = (
    "jobs have no network here: install it for the interpreter that --python names, or let jobs "
    "out with --internet"
)
"""Advice for a package that pip did not find."""
_FULL = "no space left on device"  # as the engines write it, in Go; Python's has a capital letter
_PRUNE = "the disk on which the container engine keeps its containers is full: docker system prune"
_PEER = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "DistNetwork")
"""Errors of a rank whose peer has died: a consequence, shown only if no other error is found."""
_SIGNAL = re.compile(r"Signal \d+ \(SIG\w+\) received by PID \d+")
"""Message of torchrun's root cause when a worker was killed."""
_NOISE = re.compile(r"^(\++ |Command failed with exit code|An error occurred with exit code|\s*$)")
_NATIVE = re.compile(
    r"Stack trace:$|\[bt\] \(\d+\)|"
    r"Exception raised from .* \(most recent call first\):$|C\+\+ CapturedTraceback:$|"
    r"frame #\d+: |#\d+ .+ from .+:\d+$|<omitting python frames>$|"
    r"\S+\(\S*\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]$"
)
"""A line of a C++ stack trace, or its head."""
_DRIVER = (
    *("subprocess.CalledProcessError", "Training Execution failed"),
    "InstallRequirementsError",
    'ErrorMessage ""',  # the sagemaker-training toolkit, when it did not capture the script's error
)


def reason(end: Exit, message: str, logs: Mapping[str, Sequence[str]], hint: str = OFFLINE) -> str:
    """Return FailureReason in AWS's form, ``AlgorithmError: ..., exit code: N``, of at most 1,024
    characters.

    ``message``: what the job left in ``/opt/ml/output/failure`` (or ``message``). ``logs``: the
    last lines of each node. ``hint``: what to do where pip did not find a package.
    """
    # AWS's drivers leave only their own CalledProcessError: the log's last exception is better.
    by_driver = any(mark in message for mark in _DRIVER)
    own_message = without_native_frames(message) if not by_driver else ""
    cause = _add_hint(own_message, hint) if own_message else excerpt(end.node, logs, hint)
    ending = ending_of(end)
    room = LIMIT - len(f"AlgorithmError: , {ending}")
    return f"AlgorithmError: {shorten(cause, room)}, {ending}"


def without_native_frames(text: str) -> str:
    """Return the text without the stack traces of C++ libraries that Python exceptions carry.

    The traces are longer than the cause. Known are dmlc's (XGBoost), c10's (torch) and glibc's.
    """
    return "\n".join(line for line in text.splitlines() if not _is_native(line)).strip()


def _is_native(line: str) -> bool:
    return bool(_NATIVE.match(_RANK.sub("", line).strip()))


def ending_of(end: Exit) -> str:
    """Return ``exit code: 1``; for a signal, the text also names node and signal."""
    if end.status < 0:
        name = signal.Signals(-end.status).name
        return (
            f"{end.node} was killed by signal {-end.status} ({name}), exit code: {128 - end.status}"
        )
    if end.status > 128 and end.status - 128 in set(signal.Signals):  # how a shell reports a signal
        name = signal.Signals(end.status - 128).name
        return f"a process of {end.node} was killed by {name}, exit code: {end.status}"
    return f"exit code: {end.status}"


def excerpt(first: str, logs: Mapping[str, Sequence[str]], hint: str = OFFLINE) -> str:
    """Return the exception that ended the job, else pip's missing package, else the last lines."""
    nodes = [first, *(name for name in logs if name != first)]
    errors = [(name, text) for name in nodes for text in _exceptions(logs.get(name, ()))]
    own_errors = [pair for pair in errors if not any(mark in pair[1] for mark in _PEER)]
    signals = [(n, m[0]) for n in nodes for line in logs.get(n, ()) if (m := _SIGNAL.search(line))]
    pip = [(n, m[1]) for n in nodes for line in logs.get(n, ()) if (m := _PIP(line))]
    # An exception of a rank's own tells more than pip's message or a signal, and those more than
    # the death of a peer.
    for name, text in own_errors or pip or signals or errors:
        hinted_text = _add_hint(text, hint)
        return hinted_text if len(logs) == 1 else f"{hinted_text} ({name})"
    log_lines = (line for line in logs.get(first, ()) if not _is_native(line))
    lines = [line.strip() for line in log_lines if not _NOISE.match(line)]
    return " | ".join(lines[-TAIL:])


def start_failure(node: str, logs: Mapping[str, Sequence[str]]) -> str:
    """Return why the engine could not start a container: its words, and what to do about a full
    disk.
    """
    text = excerpt(node, logs)
    return f"{_PRUNE} ({text})" if _FULL in text else text


def _add_hint(text: str, hint: str) -> str:
    """Return the text, with the hint if it quotes pip's message about a missing package."""
    return f"{text}; {hint}" if hint and _LACKS in text else text


def _exceptions(lines: Sequence[str]) -> list[str]:
    """Return exception lines, the last one first, without those of launchers."""
    texts = [_RANK.sub("", line).strip() for line in reversed(lines)]
    matches = [text for text in texts if _EXCEPTION.match(text)]
    return [text for text in matches if not any(mark in text for mark in _LAUNCHER)]


def shorten(text: str, room: int) -> str:
    """Cut the middle out: the start and the end of a traceback are the most useful parts."""
    if len(text) <= room:
        return text
    head = room // 3
    # Five: the characters of " ... ".
    return f"{text[:head]} ... {text[-(room - head - 5) :]}"


# Packages that a job's script imports: what the interpreter lacks, and has of another version.
#
# Both are only reported, before the job starts: a script may install a package itself before it
# imports it, and AWS's drivers install what requirements.txt names. Only imports that always happen
# when a script starts are examined, not those in functions or in ``try``: in the script, and in the
# modules that it imports from its folder or from one above.

_SCRIPT = re.compile(r"/opt/ml/[\w./-]+\.(?:py|sh)\b")
_SDK = "/opt/ml/input/data/sm_drivers/sourcecode.json"
"""File in which the SageMaker SDK v3 names the script that its driver starts."""
_HYPERPARAMETERS = "/opt/ml/input/config/hyperparameters.json"
_ARCHIVE = "sagemaker_submit_directory"
"""Hyperparameter by which the SDK names the archive with the script, for AWS's toolkit."""
_PYTHON_COMMAND = re.compile(r"^python3? (?P<script>[\w./-]+\.py)\b", re.MULTILINE)
"""Line of a FrameworkProcessor's runproc.sh, which unpacks sourcedir.tar.gz in its folder."""
_LARGEST = 2**26
"""Bytes of an archive, at most, that is unpacked to read its scripts."""

_PARSING = threading.Lock()
"""Lock around parsing: CPython 3.11 counts the depth of a tree for all threads at once, and two
that parse at the same time may end in a SystemError."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script that a job starts."""

    name: str
    imports: frozenset[str]
    """Top-level names from outside the standard library and its own folders."""

    installs: str = ""
    """The requirements.txt beside it."""


def scripts(node: Node, source: Callable[[str], Path]) -> list[Script]:
    """Return the scripts that the node's command names, AWS's drivers and its toolkit start.

    ``source(uri)``: the file of an object in S3.
    """
    job_scripts = [_read(script, node.ml) for script in _named_files(node)]
    for archive, name in _named_archives(node, source):
        with TemporaryDirectory() as folder, suppress(OSError, tarfile.TarError):  # the job says so
            if archive.stat().st_size <= _LARGEST:
                with tarfile.open(archive) as tar:
                    unpack(tar, Path(folder))
                if (Path(folder) / name).is_file():
                    job_scripts.append(_read(Path(folder) / name, Path(folder)))
    return job_scripts


def import_warnings(node: Node, job_scripts: list[Script]) -> list[str]:
    """Return one line for each script that imports a missing package, and installs none.

    Of packages that are there, bytecode is made where it is missing.
    """
    lines = []
    for script in job_scripts:
        if not script.imports or script.installs:
            continue
        missing, uncompiled_modules = find_modules(node.python, script.imports)
        keep_bytecode(node.python, uncompiled_modules)
        if missing:
            lines.append(
                f"{script.name} imports {', '.join(missing)}, which {node.python} lacks: install "
                "it there, or name an interpreter that has it with --python PATH"
            )
    return lines


def version_notice(python: Path, image: str, imports: set[str], installs: str = "") -> str:
    """Return one line on imported packages of which AWS publishes another version in the image.

    Empty if there are none; ``installs``: requirements that the job installs by itself.
    """
    image_record = known_image(image)
    if not image_record or not imports:
        return ""
    requirements = {
        name.lower().replace("_", "-") for name in re.findall(r"(?m)^[\w.-]+", installs)
    }
    version, versions = installed_packages(python, set(image_record.packages) - requirements)
    rows = differences(image_record, version, versions, imports)
    return f"{STANDS_IN} {image_record.name}: {', '.join(rows)}" if rows else ""


def read_imports(script: Path, top: Path) -> set[str]:
    """Return the packages that a script imports, whose own modules lie in folders below ``top``."""
    return _imports(script, [path for path in script.parents if path.is_relative_to(top)])


def _read(script: Path, top: Path) -> Script:
    requirements = script.with_name("requirements.txt")
    installs = requirements.read_text(errors="replace") if requirements.is_file() else ""
    return Script(script.name, frozenset(read_imports(script, top)), installs)


def _named_files(node: Node) -> Iterator[Path]:
    """Iterate over the Python files in the job's command, and the one that AWS's driver starts."""
    names = [name for name in _SCRIPT.findall(" ".join(node.command)) if name.endswith(".py")]
    if (about := node.inside(_SDK)).is_file():
        entry = json.loads(about.read_text()).get("entry_script")
        names += [f"/opt/ml/input/data/code/{entry}"] if entry else []
    for path in dict.fromkeys(names):
        if (script := node.inside(path)).is_file():
            yield script


def _named_archives(node: Node, source: Callable[[str], Path]) -> Iterator[tuple[Path, str]]:
    """Iterate over (archive, script in it) that AWS's toolkit, or a runproc.sh, unpacks."""
    if (config := node.inside(_HYPERPARAMETERS)).is_file():
        hyperparameters = json.loads(config.read_text())
        uri, script = (str(hyperparameters.get(name, "")).strip('"') for name in (_ARCHIVE, SCRIPT))
        if script and uri.startswith("s3://"):
            with suppress(ApiError, OSError):  # the toolkit will say so
                yield source(uri), script
    for name in _SCRIPT.findall(" ".join(node.command)):
        shell = node.inside(name)
        archive = node.inside("/opt/ml/processing/input/code/sourcedir.tar.gz")
        if name.endswith(".sh") and shell.is_file() and archive.is_file():
            for match in _PYTHON_COMMAND.finditer(shell.read_text(errors="replace")):
                yield archive, match["script"]


def _imports(script: Path, roots: list[Path]) -> set[str]:
    """Return the script's top-level imports from outside the standard library and ``roots``."""
    packages, visited_paths, queue = set(), set(), [script]
    while queue:
        module = queue.pop()
        visited_paths.add(module)
        for name in _iterate_imports(module):
            local = [path for root in roots for path in (root / f"{name}.py", root / name)]
            if local := [path for path in local if path.exists()]:
                files = [path / "__init__.py" if path.is_dir() else path for path in local]
                queue += [path for path in files if path.is_file() and path not in visited_paths]
            elif name not in sys.stdlib_module_names:
                packages.add(name)
    return packages


def _iterate_imports(module: Path) -> Iterator[str]:
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
