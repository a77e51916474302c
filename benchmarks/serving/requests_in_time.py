"""Send requests to a server and time them: by clients that wait, or by a clock that does not."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(slots=True)
class Answered:
    """Seconds of each request, and bodies of the answers by the request's number."""

    seconds: list[float] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    refused: int = 0
    """Requests that the server, overloaded, did not take."""
    wall: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.seconds) / self.wall

    def milliseconds(self, share: float) -> float:
        """The time that this share of the requests took at most."""
        return float(np.quantile(self.seconds, share)) * 1000


class Connection:
    """A kept-alive HTTP connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> bytes | None:
        """Ask ``/invocations``; None if the server, overloaded, says so (503) or hangs up.

        Raises:
            RuntimeError: the answer has another status than 200.
        """
        kept = self._streams is not None
        try:
            return await self._post(body)
        except (ConnectionError, asyncio.IncompleteReadError):
            self._streams = None
        return await self.post(body) if kept else None  # it may have been closed while idle

    async def _post(self, body: bytes) -> bytes | None:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        lengths = [line.split(b":")[1] for line in lines if line.startswith(b"content-length")]
        found = await reader.readexactly(int(lengths[0]))
        status = lines[0].split()[1]
        if status == b"503":
            return None
        if status != b"200":
            raise RuntimeError(f"{lines[0]!r}: {found[:300]!r}")
        return found


def by_clients(port: int, bodies: Sequence[bytes], clients: int, seconds: float) -> Answered:
    """Let clients ask one request after the other: what the server answers at most."""
    found = Answered()

    async def client(number: int, end: float) -> None:
        connection = Connection(port)
        while (began := time.perf_counter()) < end:
            if (answer := await connection.post(bodies[number % len(bodies)])) is not None:
                found.seconds.append(time.perf_counter() - began)
                found.bodies[number % len(bodies)] = answer
            number += clients

    async def all_clients() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(client(number, end) for number in range(clients)))

    return _timed(found, all_clients())


def by_clock(port: int, bodies: Sequence[bytes], rate: float, seconds: float) -> Answered:
    """Send requests at random moments, ``rate`` a second on average, whether or not earlier ones
    were answered; each is timed from its moment.
    """
    moments = np.cumsum(np.random.default_rng(0).exponential(1 / rate, int(rate * seconds)))
    found, free = Answered(), list[Connection]()

    async def ask(number: int, moment: float) -> None:
        connection = free.pop() if free else Connection(port)
        if await connection.post(bodies[number % len(bodies)]) is None:
            found.refused += 1
        else:
            found.seconds.append(time.perf_counter() - moment)
        free.append(connection)

    async def in_time() -> None:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, moment in enumerate(moments + began):
                await asyncio.sleep(max(0.0, moment - time.perf_counter()))
                group.create_task(ask(number, moment))

    return _timed(found, in_time())


def _timed(found: Answered, work: Coroutine[Any, Any, None]) -> Answered:
    began = time.perf_counter()
    asyncio.run(work)
    found.wall = time.perf_counter() - began
    return found
