"""Exchange values between the ranks about a checkpoint, through the job's store, without its
timeout.

In a round every rank sends a value, and rank 0 responds once. A rank makes about five requests to
the store, and two per second while it waits; rank 0 makes one more for each rank. No rank receives
the values of all others except rank 0.

A collective fails when one rank comes two minutes later than the others. Here a rank may read for
an hour: a rank that makes progress says so (``report_progress``), and the others wait as long as
any rank does. The patience is counted from the last report of any rank, so a hang is noticed once
all other work is done.
"""

import json
import time
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch.distributed as dist

from trainyard.common.errors import LostRankError, TrainingError

POLL_SECONDS = 5.0  # seconds between two checks of whether any rank makes progress
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
"""Seconds between two checks for a response: at first, and when it takes long. The store's own wait
is not used because it would log two lines on every rank each time it times out.
"""
SUCCESS, FAILURE = b"+", b"-"
MOST_NAMED = 8  # ranks that a message lists at most

Choice = Callable[[Sequence[Any]], Any]


def pack_value(value: Any) -> bytes:
    """Return a JSON value as compressed bytes."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)


def unpack_value(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


class LoneRank:
    """The counterpart of ``StoreExchange`` for a single process, which waits for no other rank."""

    rank, world = 0, 1

    def decide_together(self, value: Any, choose: Choice, *, needs_result: bool = True) -> Any:
        choice = choose([value])
        return choice if needs_result else None

    def decide_per_rank(self, value: Any, choose: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
        return choose([value])[0]

    def store_offer(self, name: str, content: bytes) -> None:
        self._offers = {**getattr(self, "_offers", {}), name: content}

    def get_offer(self, name: str) -> bytes:
        return self._offers[name]

    def report_progress(self) -> None:
        pass

    def give_up(self) -> None:
        pass


class StoreExchange:
    """One rank's side of the exchange among ``world`` ranks. Every rank makes the same calls in the
    same order.

    Args:
        store: store for the meetings of these ranks only, over a connection that nothing else uses.
        patience_seconds: how long waiting ranks wait while no rank makes progress.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        world: int,
        patience_seconds: float,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.rank, self.world = rank, world
        self._store, self._patience = store, patience_seconds
        self._poll_seconds = min(poll_seconds, patience_seconds / 4)
        self._round, self._last_pulse = 0, 0.0
        self._heard_by_all: list[str] = []
        self._given_up = False

    def decide_together(self, value: Any, choose: Choice, *, needs_result: bool = True) -> Any:
        """Return on every rank what ``choose`` returns on rank 0, called with the values of all
        ranks.

        Args:
            needs_result: whether this rank needs the result; if not, None is returned.

        Raises:
            TrainingError: ``choose`` raised it on rank 0; with the same message on every rank.
            LostRankError: a rank does not join the round, and no rank makes progress.
        """
        name = self._publish_value(value)
        if self.rank == 0:
            self._decide_round(name, lambda values: {f"{name}/answer": choose(values)})
        return self._read_answer(name, f"{name}/answer" if needs_result else None)

    def decide_per_rank(self, value: Any, choose: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
        """Return this rank's item of what ``choose`` returns on rank 0: one item for each rank.

        Otherwise like ``decide_together``.
        """
        name = self._publish_value(value)

        def choose_parts(values: Sequence[Any]) -> dict[str, Any]:
            """Return each rank's choice by its key in the store."""
            choices = choose(values)
            return {f"{name}/answer/{rank}": choice for rank, choice in enumerate(choices)}

        if self.rank == 0:
            self._decide_round(name, choose_parts)
        return self._read_answer(name, f"{name}/answer/{self.rank}")

    def store_offer(self, name: str, content: bytes) -> None:
        """Store ``content`` under ``name`` for other ranks, unless it exists, before a round."""
        if not self._store.check([name]):
            self._put(name, content)

    def get_offer(self, name: str) -> bytes:
        """Return what a rank offered under ``name`` before a round."""
        return self._store.get(name)

    def report_progress(self) -> None:
        """Report that this rank makes progress. Calls are cheap: most of them return at once."""
        if time.monotonic() - self._last_pulse > self._poll_seconds:
            self._store.add("pulse", 1)
            self._last_pulse = time.monotonic()

    def give_up(self) -> None:
        """Make a waiting thread end soon, because a rank is known to be gone."""
        self._given_up = True

    def _put(self, key: str, content: bytes) -> None:
        self._store.set(key, content)  # type: ignore[arg-type]  # torch's stub lacks bytes

    def _publish_value(self, value: Any) -> str:
        """Publish this rank's value for the next round; return the round's name."""
        self._round += 1
        name = str(self._round)
        self._put(f"{name}/{self.rank}", pack_value(value))
        # The last rank to come sets ``all``, so that rank 0 waits for one key, not for one of each
        # rank.
        if self._store.add(f"{name}/count", 1) == self.world:
            self._store.set(f"{name}/all", "")
        return name

    def _decide_round(self, name: str, choose: Callable[[Sequence[Any]], dict[str, Any]]) -> None:
        """Act as rank 0 in a round: collect the values; publish ``choose``'s result or error."""
        self._wait(f"{name}/all", name)
        keys = [f"{name}/{rank}" for rank in range(self.world)]
        answers: dict[str, Any] = {}
        try:
            answers = choose([unpack_value(content) for content in self._store.multi_get(keys)])
            status = SUCCESS
        except TrainingError as error:
            status = FAILURE + str(error).encode()
        for key, value in answers.items():
            self._put(key, pack_value(value))
        self._put(f"{name}/done", status)
        # Every rank has come to this round, so each has read the response of the previous one: the
        # keys of both can be deleted.
        for key in [*keys, f"{name}/count", f"{name}/all", *self._heard_by_all]:
            self._store.delete_key(key)
        self._heard_by_all = [*answers, f"{name}/done"]

    def _read_answer(self, name: str, key: str | None) -> Any:
        """Return rank 0's response under ``key``, or None if ``key`` is None."""
        self._wait(f"{name}/done", name)
        status = self._store.get(f"{name}/done")
        if status.startswith(FAILURE):
            raise TrainingError(status[1:].decode())
        return unpack_value(self._store.get(key)) if key else None

    def _wait(self, key: str, name: str) -> None:
        """Wait until a key exists, as long as any rank makes progress.

        Raises:
            LostRankError: no rank made progress for the patience, or ``give_up`` was called.
        """
        since = last_check = time.monotonic()
        pause, last = FIRST_PAUSE, -1
        while not self._store.check([key]):
            if self._given_up:
                raise LostRankError(
                    f"{self._describe_missing_ranks(name)} did not join the checkpoint"
                )
            time.sleep(min(pause, self._poll_seconds))
            pause, now = min(2 * pause, LONGEST_PAUSE), time.monotonic()
            if now - last_check < self._poll_seconds:
                continue
            # Adding 0 reads the counter; ``get`` would block until some rank has counted.
            pulses, last_check = self._store.add("pulse", 0), now
            if pulses != last:
                since, last = now, pulses
            elif now - since > self._patience:
                raise LostRankError(
                    f"{self._describe_missing_ranks(name)} did not join the checkpoint, and no "
                    f"rank has made progress for {self._patience:g} s (collective_timeout_seconds)"
                )

    def _describe_missing_ranks(self, name: str) -> str:
        """Return a text that names the ranks that have not joined the round."""
        keys = ((rank, f"{name}/{rank}") for rank in range(self.world))
        absent = [*islice((rank for rank, key in keys if not self._store.check([key])), MOST_NAMED)]
        if not absent:
            return "rank 0"  # all have come to the round, and it has not answered
        more = self.world - self._store.add(f"{name}/count", 0) - len(absent)
        others = f" and {more} others" if more > 0 else ""
        return f"rank {', '.join(map(str, absent))}{others}"
