"""Find which checkpoints the machines have together, and which machine has each file.

Each marker is read once: the first machine that has it sends it to rank 0, and rank 0 sends it to
all ranks. Of the shards a machine checks only whether they exist, and their sizes.
"""

import hashlib
import json
import logging
import os
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.checkpoint import marker
from training.checkpoint.block_hashes import DamagedFile, LocalFile, Source, build_hashes_path
from training.checkpoint.marker import DamagedMarkerError, Marker
from training.checkpoint.rendezvous import LoneRank, StoreExchange
from trainyard.common.errors import TrainingError

# Serving files between machines. A machine that was restarted with an empty disk has no files; the
# others have the files of their own ranks. While a checkpoint is read, one rank of each machine
# that has a file that another machine lacks serves byte ranges of its files, to any client that
# knows a secret word that only the ranks of this job received.
#
#     word (32 characters), then requests: {"file": "shard-…", "begin": 0, "count": 16384}\n
#     → count bytes; or the connection ends


WORD = 32  # characters
SILENCE = 60  # seconds to wait for a machine that does not respond
AT_ONCE = 2**20  # bytes that are read and sent at once


def create_secret() -> str:
    """Return a new random secret of ``WORD`` characters."""
    return secrets.token_hex(WORD // 2)


class Server:
    """Serve a folder's files to the other machines until it is closed.

    Attributes:
        address: host and port at which the other machines reach it.
    """

    def __init__(self, folder: Path, names: Iterable[str], word: str) -> None:
        """Start serving the files ``names``; no others may be requested."""
        host, bound = _choose_own_address()
        file_names = frozenset(names)
        # A silent client blocks its handler's thread, so ``close`` shuts all open connections down.
        self._open = connections = set[socket.socket]()

        class Answer(socketserver.StreamRequestHandler):
            """Handler of one client's connection."""

            def setup(self) -> None:
                """Register the connection, so that ``close`` can shut it down."""
                super().setup()
                connections.add(self.connection)

            def finish(self) -> None:
                connections.discard(self.connection)
                super().finish()

            def handle(self) -> None:
                """Check the secret word, then send the requested bytes until the client
                disconnects.
                """
                self.connection.settimeout(SILENCE)
                # Compare in constant time, which does not reveal how much of a guessed word is
                # right.
                if not secrets.compare_digest(self.rfile.read(WORD), word.encode()):
                    return
                for line in self.rfile:
                    request = json.loads(line)
                    # A path in a request could lead to any file of the machine, so only listed
                    # names pass.
                    if request["file"] not in file_names:
                        return
                    with closing(LocalFile(folder / request["file"])) as file:
                        _send_bytes(file, request["begin"], request["count"], self.wfile.write)

        class ThreadedServer(socketserver.ThreadingTCPServer):
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """Ignore the error: the client sees the connection end, and reports that."""

        self._server = ThreadedServer((bound, 0), Answer)
        self.address = host, int(self._server.server_address[1])
        # The loop checks every 0.1 s whether to end, and ``close`` waits for that.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and wait for the threads to end."""
        self._server.shutdown()
        self._thread.join()
        for connection in [*self._open]:
            with suppress(OSError):  # the connection has already ended
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()


def _send_bytes(
    file: LocalFile, begin: int, count: int, write: Callable[[memoryview], object]
) -> None:
    """Read ``count`` bytes from ``begin`` on, and write them in parts of ``AT_ONCE`` bytes."""
    buffer = memoryview(bytearray(min(count, AT_ONCE)))
    for offset in range(0, count, AT_ONCE):
        part = buffer[: min(AT_ONCE, count - offset)]
        file.read(begin + offset, part)
        write(part)


def _choose_own_address() -> tuple[str, str]:
    """Return the host at which the other machines reach this one, and the address to bind to.

    Rank 0's machine is reached at MASTER_ADDR. Any other uses the address of its interface to that
    host.
    """
    meeting = os.environ["MASTER_ADDR"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_socket:
        udp_socket.connect((meeting, 9))  # UDP: this only chooses a route, and sends nothing
        address = udp_socket.getsockname()[0]
    # On rank 0's machine its own name may resolve to a loopback address, which others cannot reach.
    if address.startswith("127.") and int(os.environ["RANK"]) == 0:
        local = meeting in ("localhost", address) or meeting.startswith("127.")
        return meeting, "127.0.0.1" if local else ""
    return address, address


class RemoteFile:
    """A file on another machine.

    Args:
        addresses: addresses of the machines that have it; the first is used until it fails, then
            the next one.
    """

    def __init__(self, name: str, addresses: Sequence[tuple[str, int]], word: str) -> None:
        self._name, self._addresses, self._word = name, list(addresses), word
        self._connection: socket.socket | None = None

    def read(self, begin: int, into: memoryview) -> None:
        """Fill ``into`` with the bytes from ``begin`` on, like ``block_hashes.Source.read``.

        Raises:
            DamagedFile: none of the machines sends the bytes.
        """
        while True:
            try:
                return self._fetch_bytes(begin, into)
            except OSError as error:
                self.close()
                host, port = self._addresses.pop(0)
                if not self._addresses:
                    raise DamagedFile(
                        f"{self._name} is not on this machine, and {host}:{port} does not send it: "
                        f"{error}"
                    ) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _fetch_bytes(self, begin: int, into: memoryview) -> None:
        """Fetch the bytes from the first machine in the list; connect to it if necessary."""
        if self._connection is None:
            self._connection = socket.create_connection(self._addresses[0], SILENCE)
            self._connection.sendall(self._word.encode())
        request = {"file": self._name, "begin": begin, "count": len(into)}
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        offset = 0
        while offset < len(into):
            count = self._connection.recv_into(into[offset:])
            if not count:
                raise ConnectionError("the connection ended")
            offset += count


log = logging.getLogger(__name__)
PRESENT, ABSENT = "+", "-"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint whose marker is on some machine; or a damaged checkpoint, with the reason.

    Attributes:
        holder: the first rank that reported this marker.
        digest: SHA-256 of the marker; empty if the checkpoint is damaged.
        damage: what is wrong with the checkpoint; empty if nothing is.
    """

    step: int
    holder: int = 0
    digest: str = ""
    damage: str = ""


def survey_checkpoints(folder: Path) -> list[tuple[int, str, str]]:
    """Return (step, digest of the marker, damage) of each checkpoint on this machine."""
    entries = [(step, "", f"has no {marker.NAME}: it was not finished") for step in
            marker.list_unfinished_steps(folder)]  # fmt: skip
    for step in marker.list_steps(folder):
        try:
            marker.load_marker(marker.build_folder_path(folder, step))
            content = (marker.build_folder_path(folder, step) / marker.NAME).read_bytes()
            entries.append((step, hashlib.sha256(content).hexdigest(), ""))
        except (DamagedMarkerError, OSError) as error:
            entries.append((step, "", str(error)))
    return entries


def gather_candidates(
    meeting: StoreExchange | LoneRank, entries: list[tuple[int, str, str]]
) -> list[Candidate]:
    """Return the checkpoints of all machines, newest first. Collective: call it on every rank.

    A damaged copy is left out if another machine has a complete one.

    Args:
        entries: result of ``survey_checkpoints``, from one rank of each machine; empty from the
            others.
    """
    return [Candidate(*fields) for fields in meeting.decide_together(entries, _merge_surveys)]


def _merge_surveys(
    surveys: Sequence[list[tuple[int, str, str]]],
) -> list[tuple[int, int, str, str]]:
    """Return the fields of each ``Candidate``: (step, holder, digest, damage), newest first."""
    holders: dict[tuple[int, str], int] = {}
    damages: dict[int, str] = {}
    for rank, entries in enumerate(surveys):
        for step, digest, damage in entries:
            if digest:
                holders.setdefault((step, digest), rank)
            else:
                damages.setdefault(step, damage)
    rows = [(step, rank, digest, "") for (step, digest), rank in holders.items()]
    complete_steps = {step for step, _ in holders}
    rows += [
        (step, 0, "", damage) for step, damage in damages.items() if step not in complete_steps
    ]
    return sorted(rows, key=lambda row: (-row[0], row[1]))


def relay_marker(meeting: StoreExchange | LoneRank, candidate: Candidate, folder: Path) -> Marker:
    """Return a checkpoint's marker, sent by a rank that has it. Collective: call it on every rank.

    Raises:
        DamagedFile: the marker was damaged since the survey.
    """
    text = None
    if meeting.rank == candidate.holder:
        text = (folder / marker.NAME).read_text(encoding="utf-8")
    content = meeting.decide_together(text, lambda texts: texts[candidate.holder])
    try:
        return marker.parse_marker(content.encode())
    except DamagedMarkerError as error:
        raise DamagedFile(str(error)) from None


@dataclass
class Files:
    """Location of each file of one checkpoint, while the checkpoint is read.

    Attributes:
        metadata: the checkpoint's marker.
        addresses: address of each machine's server, by the rank that manages the machine's folder.
        word: the secret word of this job's servers.
    """

    folder: Path
    metadata: Marker
    local_codes: str
    """``PRESENT`` or ``ABSENT`` for each of the checkpoint's shards on this machine, as one
    string.
    """
    codes_by_lead: dict[int, str]
    """``local_codes`` of each machine, by the rank that manages the machine's folder."""
    addresses: dict[int, tuple[str, int]]
    word: str
    rank: int
    server: Server | None = None

    def open_file(self, name: str) -> Source:
        """Open a shard, or the file of its hashes, on this machine or another."""
        shards = self.metadata.names
        number = shards.index(str(Path(name).with_suffix(".safetensors")))
        if self.local_codes[number] == PRESENT:
            return LocalFile(self.folder / name)
        holders = [n for n, codes in sorted(self.codes_by_lead.items()) if codes[number] == PRESENT]
        first = self.rank % len(holders)
        # Start at another machine on each rank, to spread the load.
        order = holders[first:] + holders[:first]
        log.info("%s: is read from rank %d", self.folder / name, order[0])
        return RemoteFile(name, [self.addresses[n] for n in order], self.word)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()


def locate_files(
    meeting: StoreExchange | LoneRank, folder: Path, metadata: Marker, lead: int
) -> Files:
    """Find out which machines have each file of a checkpoint. Collective: call it on every rank.

    Machines with files that others lack serve them until the result is closed.

    Args:
        lead: the rank that manages the folder of this rank's machine.

    Raises:
        DamagedFile: no machine has one of the files.
    """
    leads = meeting.rank == lead
    report = _check_local_shards(folder, metadata) if leads else None
    answer = meeting.decide_together(report, lambda answers: _merge_codes(metadata, answers))
    if "torn" in answer:
        raise DamagedFile(answer["torn"])
    codes = {int(rank): flags for rank, flags in answer["codes"].items()}
    files = Files(folder, metadata, codes[lead], codes, {}, answer["word"], meeting.rank)
    if any(ABSENT in flags for flags in codes.values()):
        if leads and PRESENT in codes[lead]:
            names = [file_name for n, name in enumerate(metadata.names) if codes[lead][n] == PRESENT
                     for file_name in (name, build_hashes_path(Path(name)).name)]  # fmt: skip
            files.server = Server(folder, names, answer["word"])
        address = files.server.address if files.server else None
        try:
            every = meeting.decide_together(address, lambda answers: answers)
        except TrainingError:
            files.close()
            raise
        files.addresses = {
            rank: tuple(host_port) for rank, host_port in enumerate(every) if host_port
        }
    return files


def _check_local_shards(folder: Path, metadata: Marker) -> dict[str, Any]:
    """Return which of the checkpoint's shards are on this machine ("codes"), and what is wrong with
    damaged ones ("why").
    """
    codes, reasons = "", {}
    for number, name in enumerate(metadata.names):
        wrong = marker.explain_damage(folder, name, metadata.files[name])
        codes += ABSENT if wrong else PRESENT
        # A missing file is normal: each machine may have only the files of its own ranks.
        if wrong and wrong != _format_missing_file(name):
            reasons[str(number)] = wrong
    return {"codes": codes, "why": reasons}


def _format_missing_file(name: str) -> str:
    return f"{name} is missing"


def _merge_codes(metadata: Marker, answers: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """Return all machines' codes and a new secret, or ``torn`` (why) if no machine has a shard."""
    codes = {rank: report["codes"] for rank, report in enumerate(answers) if report}
    for number, name in enumerate(metadata.names):
        if all(flags[number] == ABSENT for flags in codes.values()):
            reasons = (report["why"].get(str(number)) for report in answers if report)
            return {"torn": next(filter(None, reasons), _format_missing_file(name))}
    return {"codes": codes, "word": create_secret()}
