"""Bytes of a checkpoint that only another machine has: asked for, never sent to all.

On a machine that was restarted with an empty disk nothing lies; the others have their ranks' files.
One rank of each machine that has what another one lacks serves byte ranges of these files while a
checkpoint is read, to whoever knows a word that only the ranks of this job were told.

    word (32 characters), then requests: {"file": "shard-…", "begin": 0, "count": 16384}\\n
    → count bytes; or the connection ends
"""

import json
import os
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from training.checkpoints.blocks import Local, Torn

WORD = 32  # characters
SILENCE = 60  # seconds until a machine that does not answer is given up
AT_ONCE = 2**20  # bytes


def word() -> str:
    """A new one."""
    return secrets.token_hex(WORD // 2)


class Server:
    """Serves a folder's files to the other machines until it is closed.

    Attributes:
        address: host and port at which the others find it.
    """

    def __init__(self, folder: Path, names: Iterable[str], word: str) -> None:
        """``names``: the files that may be asked for."""
        host, bound = _host()
        known = frozenset(names)
        self._open = connections = set[socket.socket]()

        class Answer(socketserver.StreamRequestHandler):
            def setup(self) -> None:
                super().setup()
                connections.add(self.connection)

            def finish(self) -> None:
                connections.discard(self.connection)
                super().finish()

            def handle(self) -> None:
                self.connection.settimeout(SILENCE)
                if not secrets.compare_digest(self.rfile.read(WORD), word.encode()):
                    return
                for line in self.rfile:
                    asked = json.loads(line)
                    if asked["file"] not in known:
                        return
                    with closing(Local(folder / asked["file"])) as file:
                        _send(file, asked["begin"], asked["count"], self.wfile.write)

        class Threaded(socketserver.ThreadingTCPServer):
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """Nothing: who asked sees the end of the connection, and says so."""

        self._server = Threaded((bound, 0), Answer)
        self.address = host, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Serve no more, and wait for the threads."""
        self._server.shutdown()
        self._thread.join()
        for connection in [*self._open]:
            with suppress(OSError):  # it ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()


def _send(file: Local, begin: int, count: int, write: Callable[[memoryview], object]) -> None:
    buffer = memoryview(bytearray(min(count, AT_ONCE)))
    for at in range(0, count, AT_ONCE):
        part = buffer[: min(AT_ONCE, count - at)]
        file.read(begin + at, part)
        write(part)


def _host() -> tuple[str, str]:
    """Where the others reach this machine, and what to bind to for that.

    Rank 0's machine is where they meet; of another one it is the address that it has towards it.
    """
    meeting = os.environ["MASTER_ADDR"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((meeting, 9))  # sends nothing
        mine = way.getsockname()[0]
    if mine.startswith("127.") and int(os.environ["RANK"]) == 0:
        local = meeting in ("localhost", mine) or meeting.startswith("127.")
        return meeting, "127.0.0.1" if local else ""
    return mine, mine


class Remote:
    """A file on another machine.

    Args:
        addresses: of the machines that have it; the first that answers is asked.
    """

    def __init__(self, name: str, addresses: Sequence[tuple[str, int]], word: str) -> None:
        self._name, self._addresses, self._word = name, list(addresses), word
        self._connection: socket.socket | None = None

    def read(self, begin: int, into: memoryview) -> None:
        """As ``blocks.Source``."""
        while True:
            try:
                return self._ask(begin, into)
            except OSError as error:
                self.close()
                host, port = self._addresses.pop(0)
                if not self._addresses:
                    raise Torn(
                        f"{self._name} is not on this machine, and {host}:{port} does not send it: "
                        f"{error}"
                    ) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, begin: int, into: memoryview) -> None:
        if self._connection is None:
            self._connection = socket.create_connection(self._addresses[0], SILENCE)
            self._connection.sendall(self._word.encode())
        asked = {"file": self._name, "begin": begin, "count": len(into)}
        self._connection.sendall(json.dumps(asked).encode() + b"\n")
        done = 0
        while done < len(into):
            count = self._connection.recv_into(into[done:])
            if not count:
                raise ConnectionError("the connection ended")
            done += count
