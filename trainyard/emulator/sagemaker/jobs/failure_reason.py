"""FailureReason of a job: the cause, first and short."""

import re
import signal
from collections.abc import Mapping, Sequence

from trainyard.emulator.containers.cluster import Exit

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
