"""An emulator and a console in processes of their own, as people start them."""

import contextlib
import http.cookiejar
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

CHECKOUT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Started:
    """A process that serves. ``seconds``: from its start until it says so."""

    process: psutil.Process
    seconds: float

    @property
    def megabytes(self) -> float:
        """What it has in memory now (RSS)."""
        return float(self.process.memory_info().rss / 1e6)

    @property
    def cpu(self) -> float:
        """Processor seconds that it has used, user and system."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextlib.contextmanager
def emulator(state: Path) -> Iterator[tuple[Started, dict[str, str]]]:
    """``trainyard emulator`` over that state; and the environment that leads there."""
    with _serving(["emulator", "--state", str(state)], dict(os.environ)) as (process, output):
        began, env = time.monotonic(), dict(os.environ)
        for line in output:
            if line.startswith("export "):
                [_, pair] = shlex.split(line)
                name, _, env[name] = pair.partition("=")
            elif line.startswith("emulator on "):
                break
        yield Started(process, time.monotonic() - began), env


@contextlib.contextmanager
def console(env: Mapping[str, str]) -> Iterator[tuple[Started, "Visitor"]]:
    """``trainyard console`` in that environment, and somebody with its key."""
    began = time.monotonic()
    with _serving(["console"], env) as (process, output):
        address = next(line.split()[-1] for line in output if "console on " in line)
        yield Started(process, time.monotonic() - began), Visitor(address)


@contextlib.contextmanager
def _serving(
    arguments: list[str], env: Mapping[str, str]
) -> Iterator[tuple[psutil.Process, Iterator[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "trainyard", *arguments],
        cwd=CHECKOUT,
        env={**env, "COLUMNS": "500"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None  # it was asked for
    try:
        yield psutil.Process(process.pid), iter(process.stdout)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


class _NotFollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Visitor:
    """A client that has the console's key."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.root = address.partition("/?")[0]
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(
            cookies, urllib.request.ProxyHandler({}), _NotFollowed()
        )
        with contextlib.suppress(urllib.error.HTTPError):  # 302, with the cookie; no page is asked
            self._opener.open(self.address)

    def get(self, path: str) -> tuple[float, str]:
        """Seconds until all of the page is there, and its HTML."""
        began = time.perf_counter()
        with self._opener.open(f"{self.root}{path}") as answer:
            html = answer.read().decode()
        return time.perf_counter() - began, html
