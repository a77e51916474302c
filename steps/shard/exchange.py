"""Exchange records and sorted runs among the instances of one job, by Arrow Flight.

Each instance runs a server, which only reads: it gives its progress records, the keys of its sorted
runs and their content, to instances of the same job with the same settings and code. Whatever is
asked for can be asked for again, so an instance that was killed and started again goes on.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import flight

from steps.shard import shard_progress
from steps.shard.cluster import Cluster, resolved
from steps.shard.served_runs import ServedRuns
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Record
from trainyard.common.errors import DataError, TrainyardError
from trainyard.common.hashes import json_sha256

log = logging.getLogger(__name__)

INTERVAL = 10
"""Seconds between two log lines."""
LINGER = 5
"""Seconds for which an instance that failed still says so."""
PULLED = "pulled"
"""Stem of the record that an instance has all the content that it packs."""
THERE, ABSENT, ERROR = b"+", b"-", b"!"
CALL = flight.FlightCallOptions(timeout=120)
BROKEN = 5
"""Times in a row that an answer may break off although the instance is there."""
CHANNEL = [
    ("grpc.keepalive_time_ms", 310_000),  # notices a machine that is gone; servers refuse more
    ("grpc.keepalive_timeout_ms", 60_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]

Kind = TypeVar("Kind", bound=Record)


class Peers:
    """All instances of the job; a ``with`` block keeps this one's server up.

    Args:
        plan: settings, which must be the same on all of them.
    """

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.cluster = cluster
        self.identity = {
            "job": json_sha256([plan.settings, plan.code, plan.max_bad_share, cluster.hosts])
        }
        """Identity of the records that do not depend on the raw data."""
        self.runs: ServedRuns | None = None
        """Own runs to give to the others, when all of them are written."""
        self.corpus: dict[str, str | int | bool] = {}
        """Identity of the records that depend on them."""
        self.pulled = False
        """True if this instance has all that it packs."""
        self.passed = False
        """True if it knows so of all others, so that it can go on without them."""
        self.failed = ""
        """Why this instance ends."""
        self._plan = plan
        self._clients: dict[str, flight.FlightClient] = {}
        self._silent: dict[str, float] = {}
        """Since when an instance has not answered."""
        self._logged = time.monotonic()

    def __enter__(self) -> "Peers":
        address = self.cluster.address(self.cluster.host)
        name, _, port = address.rpartition(":")
        own = resolved(name) or name
        # Debian gives a machine's own name an address that others do not reach.
        listen = "0.0.0.0" if own == "127.0.1.1" else own  # noqa: S104
        for left in range(LINGER, -1, -1):  # an instance killed just now may still have the port
            try:
                self._server = _Server(self, f"grpc://{listen}:{port}")
                break
            except (pa.ArrowException, OSError) as error:
                if not left:
                    raise TrainyardError(
                        f"{address}: cannot listen for the other instances: {error}"
                    ) from None
                time.sleep(1)
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error:
            self.failed = f"{error}" or type(error).__name__
            time.sleep(LINGER)
        end = Thread(target=self._server.shutdown, daemon=True)
        end.start()
        end.join(LINGER)  # it waits for answers that nobody may read
        for client in self._clients.values():
            client.close()

    def gather(
        self, kind: type[Kind], stem: str, identity: Mapping[str, Any], what: str
    ) -> list[Kind]:
        """Wait for one record of each instance; return them in the order of the hosts.

        ``what``: words for the log on what an instance still does.

        Raises:
            TrainyardError: an instance is silent for too long, or has failed.
        """
        found: dict[str, Kind] = {}
        asked = 0.0
        while missing := [host for host in self.cluster.hosts if host not in found]:
            every = time.monotonic() - asked > LINGER / 2  # mostly the first: a question costs, too
            asked = time.monotonic() if every else asked
            for host in missing if every else missing[:1]:
                content = self.ask(host, stem)
                record = content and shard_progress.parsed(kind, content, identity)
                if record:
                    found[host] = record
            if len(found) < len(self.cluster.hosts):
                self._wait([host for host in missing if host not in found], what)
        return [found[host] for host in self.cluster.hosts]

    def ask(self, host: str, stem: str) -> bytes | None:
        """Return the file of a progress record; None if the instance has none, or is silent.

        Raises:
            TrainyardError: the instance has failed, or belongs to another job.
        """
        if host == self.cluster.host:
            path = self._plan.progress / f"{stem}.json"
            return path.read_bytes() if path.is_file() else None
        action = flight.Action(stem, self._question({}))
        try:
            [answer] = self._client(host).do_action(action, options=CALL)
        except (flight.FlightError, OSError):
            self._silent.setdefault(host, time.monotonic())
            self._clients.pop(host).close()
            return None
        self._silent.pop(host, None)
        body = answer.body.to_pybytes()
        if body[:1] == ERROR:
            raise DataError(f"{host}: {body[1:].decode()}")
        if body[:1] == THERE and stem == PULLED and self.passed:
            shard_progress.write(Record(identity=self.corpus), f"knows-{host}", self._plan.progress)
        return body[1:] if body[:1] == THERE else None

    def keys(
        self, host: str, parts: tuple[int, int, int]
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield what ``ServedRuns.keys`` of that instance does."""
        for chunk in self._stream(host, {"keys": parts}):
            yield chunk.data, np.frombuffer(chunk.app_metadata or b"", np.int64)

    def content(self, host: str, span: tuple[str, int, int]) -> Iterator[pa.RecordBatch]:
        """Yield what ``ServedRuns.content`` of that instance does."""
        for chunk in self._stream(host, {"content": span}):
            yield chunk.data

    def linger(self) -> None:
        """Stay until every instance can go on without this one, and knows that this one can.

        Those that are silent for too long are given up: their own runs end, or fail by name.
        """
        self.pulled = self.passed = True
        while missing := [host for host in self.cluster.hosts if not self._settled(host)]:
            self.announce(missing)
            silent = [host for host in missing if self._silence(host) > self.cluster.patience]
            if silent == missing:
                log.warning("%s: silent, so this instance ends without it", ", ".join(silent))
                return
            self._wait([], f"for {', '.join(missing)} to need this instance no more")

    def announce(self, hosts: Sequence[str]) -> None:
        """Say that this instance can go on without these."""
        self.passed = True
        for host in hosts:
            self.ask(host, PULLED)

    def answer(self, stem: str, question: Mapping[str, Any]) -> bytes:
        """Answer another instance's ``ask``."""
        if wrong := self.refusal(question):
            return ERROR + wrong.encode()
        path = self._plan.progress / f"{stem}.json"
        if not stem or "/" in stem or (stem == PULLED and not self.pulled) or not path.is_file():
            return ABSENT
        if question.get("passed"):
            settled = Record(identity=self.corpus)
            shard_progress.write(settled, f"told-{question['from']}", self._plan.progress)
        return THERE + path.read_bytes()

    def refusal(self, question: Mapping[str, Any]) -> str:
        """Return why a question is not answered; "" if it is."""
        same = question.get("job") == self.identity["job"]
        if not same or question.get("from") not in self.cluster.hosts:
            return (
                f"has other settings, code or hosts than {question.get('from')}, so they are not "
                "instances of one job; start all of them with the same ones"
            )
        return self.failed

    def _silence(self, host: str) -> float:
        """Return the seconds for which the instance has not answered."""
        now = time.monotonic()
        return now - self._silent.get(host, now)

    def _stream(self, host: str, question: Mapping[str, Any]) -> Iterator[flight.FlightStreamChunk]:
        """Yield the pieces of an answer; after an interruption go on where it was."""
        taken = broken = 0
        while True:
            try:
                ticket = flight.Ticket(self._question({**question, "skip": taken}))
                for chunk in self._client(host).do_get(ticket):
                    taken, broken = taken + 1, 0
                    yield chunk
                return
            except (flight.FlightError, OSError) as error:
                why = str(error).partition(" gRPC client debug")[0].partition(" Detail: ")[0]
            self.ask(host, "")  # raises if it has failed
            broken += not self._silence(host) and _Server.WAIT not in why
            if broken > BROKEN:
                raise TrainyardError(f"{host}: {why}")
            self._wait([host], f"for its runs ({why})")

    def _wait(self, missing: Sequence[str], what: str) -> None:
        silent = [host for host in missing if self._silence(host) > self.cluster.patience]
        if silent:
            address = self.cluster.address(silent[0])
            raise TrainyardError(
                f"{silent[0]} ({address}): this instance of the job has been silent for "
                f"{self._silence(silent[0]):,.0f} s, while "
                f"{self.cluster.host} waits {what}; see its log, and run the step again"
            )
        if time.monotonic() - self._logged >= INTERVAL:
            self._logged = time.monotonic()
            log.info("waiting %s: %s", what, ", ".join(missing) or "…")
        time.sleep(min(1.0, 0.05 * len(self.cluster.hosts)))

    def _question(self, content: Mapping[str, Any]) -> bytes:
        known = {**self.identity, "from": self.cluster.host, "passed": self.passed}
        return json.dumps({**known, **content}).encode()

    def _client(self, host: str) -> flight.FlightClient:
        if host not in self._clients:
            address = f"grpc://{self.cluster.address(host)}"
            self._clients[host] = flight.connect(address, generic_options=CHANNEL)
        return self._clients[host]

    def _settled(self, host: str) -> bool:
        """Return whether both instances have said that they can go on without the other."""
        stems = () if host == self.cluster.host else (f"told-{host}", f"knows-{host}")
        folder = self._plan.progress
        return all(shard_progress.read(Record, stem, self.corpus, folder) for stem in stems)


class _Server(flight.FlightServerBase):
    """Answers the other instances; the methods' names are Flight's."""

    WAIT = "the runs are not all written yet"

    def __init__(self, peers: Peers, location: str) -> None:
        super().__init__(location)
        self._peers = peers

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        question = json.loads(action.body.to_pybytes())
        return iter([flight.Result(self._peers.answer(action.type, question))])

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        question = json.loads(ticket.ticket)
        runs = self._peers.runs
        if wrong := self._peers.refusal(question):
            raise flight.FlightServerError(wrong)
        if runs is None or ("content" in question and not runs.marked):
            raise flight.FlightUnavailableError(self.WAIT)
        if "keys" in question:
            pieces = partial(runs.keys, *question["keys"])
        else:
            pieces = partial(runs.content, *question["content"])
        schema = runs.schema("keys" in question)
        return flight.GeneratorStream(schema, self._each(islice(pieces(), question["skip"], None)))

    def _each(self, pieces: Iterator[Any]) -> Iterator[Any]:
        for piece in pieces:
            if self._peers.failed:
                raise flight.FlightServerError(self._peers.failed)
            yield piece
