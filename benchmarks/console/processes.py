"""An emulator and a console in processes of their own, as people start them."""

import contextlib
import http.cookiejar
import os
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import measured_process


@dataclass(frozen=True, slots=True)
class Started:
    """A process that serves. ``seconds``: from its start until it says so."""

    process: psutil.Process
    seconds: float

    @property
    def megabytes(self) -> float:
        """Return its resident memory in MB (RSS)."""
        return float(self.process.memory_info().rss / 1e6)

    @property
    def cpu(self) -> float:
        """Processor seconds that it has used, user and system."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextlib.contextmanager
def emulator(state: Path) -> Iterator[tuple[Started, dict[str, str]]]:
    """``trainyard emulator`` over that state; and the environment that leads there."""
    began = time.monotonic()
    with measured_process.emulator(state) as (process, told):
        seconds = time.monotonic() - began
        yield Started(psutil.Process(process.pid), seconds), os.environ | told


@contextlib.contextmanager
def console(env: Mapping[str, str]) -> Iterator[tuple[Started, "Visitor"]]:
    """``trainyard console`` in that environment, and somebody with its key."""
    began = time.monotonic()
    with measured_process.serving(["console"], env) as (process, output):
        address = next(line.split()[-1] for line in output if "console on " in line)
        seconds = time.monotonic() - began
        yield Started(psutil.Process(process.pid), seconds), Visitor(address)


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

    def post(self, path: str, body: bytes) -> None:
        """Send JSON, as a page of the console does."""
        headers = {"Content-Type": "application/json", "Origin": self.root}
        asked = urllib.request.Request(f"{self.root}{path}", body, headers)
        with self._opener.open(asked) as answer:
            answer.read()

    def stream(self, path: str) -> Generator[bytes, None, None]:
        """Iterate over the lines of an answer that does not end."""
        with self._opener.open(f"{self.root}{path}", timeout=60) as answer:
            yield from answer
