"""What the ranks tell each other about a checkpoint: through the job's store, and not in its time.

A round: every rank says something, rank 0 answers once. For ``world`` ranks these are two messages
a rank to the store, one for its answer, and world + 4 of rank 0; nobody gets what all others said.

A collective fails when one rank comes two minutes later than the others. Here a rank may read for
an hour: whoever gets on says so (``pulse``), and the others wait while anybody does. The patience
counts from the last sign of anyone, so of what hangs the others notice when all else is done.
"""

import json
import time
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trainyard.common.errors import LostRankError, TrainingError

LOOK = 5.0  # seconds between two looks at whether anybody gets on
WELL, FAILED = b"+", b"-"
NAMED = 8  # ranks, in a message

Choice = Callable[[Sequence[Any]], Any]


def packed(value: Any) -> bytes:
    """A value of JSON as bytes, small."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)


def unpacked(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


class Alone:
    """Of a process that no other one waits for."""

    rank, world = 0, 1

    def decide(self, mine: Any, choose: Choice) -> Any:
        return choose([mine])

    def deal(self, mine: Any, choose: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
        return choose([mine])[0]

    def offer(self, name: str, content: bytes) -> None:
        self._offered = {**getattr(self, "_offered", {}), name: content}

    def offered(self, name: str) -> bytes:
        return self._offered[name]

    def pulse(self) -> None:
        pass

    def give_up(self) -> None:
        pass


class Meeting:
    """This rank's place among the ``world`` ranks; every rank makes the same calls in order.

    Args:
        store: of these ranks' meetings only, by a connection that nobody else uses.
        patience_seconds: how long nobody may get on until those that wait give up.
    """

    def __init__(
        self, store: dist.Store, rank: int, world: int, patience_seconds: float, look: float = LOOK
    ) -> None:
        self.rank, self.world = rank, world
        self._store, self._patience = store, patience_seconds
        self._look, self._round, self._pulsed = min(look, patience_seconds / 4), 0, 0.0
        self._heard_by_all: list[str] = []
        self._given_up = False

    def decide(self, mine: Any, choose: Choice) -> Any:
        """What rank 0 chooses, on every rank, knowing what each of them says.

        Raises:
            TrainingError: rank 0 cannot choose; with its reason.
            LostRankError: a rank does not come, and nobody gets on.
        """
        name = self._said(mine)
        if self.rank == 0:
            self._answer(name, lambda said: {f"{name}/answer": choose(said)})
        return self._heard(name, f"{name}/answer")

    def deal(self, mine: Any, choose: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
        """This rank's part of what rank 0 chooses, knowing what each rank says; as ``decide``."""
        name = self._said(mine)

        def parts(said: Sequence[Any]) -> dict[str, Any]:
            chosen = choose(said)
            return {f"{name}/answer/{rank}": one for rank, one in enumerate(chosen)}

        if self.rank == 0:
            self._answer(name, parts)
        return self._heard(name, f"{name}/answer/{self.rank}")

    def offer(self, name: str, content: bytes) -> None:
        """Leave something for whoever asks, if it is not there yet; before a round."""
        if not self._store.check([name]):
            self._store.set(name, content)

    def offered(self, name: str) -> bytes:
        """What somebody offered before a round."""
        return self._store.get(name)

    def pulse(self) -> None:
        """Say that this rank gets on; as often as it likes."""
        if time.monotonic() - self._pulsed > self._look:
            self._store.add("pulse", 1)
            self._pulsed = time.monotonic()

    def give_up(self) -> None:
        """Let a thread that waits end soon: a rank is known to be gone."""
        self._given_up = True

    def _said(self, mine: Any) -> str:
        """Say this rank's part of the next round; the round's name."""
        self._round += 1
        name = str(self._round)
        self._store.set(f"{name}/{self.rank}", packed(mine))
        if self._store.add(f"{name}/count", 1) == self.world:
            self._store.set(f"{name}/all", "")
        return name

    def _answer(self, name: str, choose: Callable[[Sequence[Any]], dict[str, Any]]) -> None:
        """Rank 0's part of a round."""
        self._wait(f"{name}/all", name)
        keys = [f"{name}/{rank}" for rank in range(self.world)]
        answers: dict[str, Any] = {}
        try:
            answers = choose([unpacked(content) for content in self._store.multi_get(keys)])
            done = WELL
        except TrainingError as error:
            done = FAILED + str(error).encode()
        for key, value in answers.items():
            self._store.set(key, packed(value))
        self._store.set(f"{name}/done", done)
        # Everybody has come to this round, and so has heard the answers of the one before.
        for key in [*keys, f"{name}/count", f"{name}/all", *self._heard_by_all]:
            self._store.delete_key(key)
        self._heard_by_all = [*answers, f"{name}/done"]

    def _heard(self, name: str, key: str) -> Any:
        self._wait(f"{name}/done", name)
        done = self._store.get(f"{name}/done")
        if done.startswith(FAILED):
            raise TrainingError(done[1:].decode())
        return unpacked(self._store.get(key))

    def _wait(self, key: str, name: str) -> None:
        """Until a key is there, while anybody gets on."""
        since, last = time.monotonic(), -1
        while not self._waited(key):
            if self._given_up:
                raise LostRankError(f"{self._missing(name)} did not come for a checkpoint")
            pulses = self._store.add("pulse", 0)
            if pulses != last:
                since, last = time.monotonic(), pulses
            elif time.monotonic() - since > self._patience:
                raise LostRankError(
                    f"{self._missing(name)} did not come for a checkpoint, and nobody has got on "
                    f"for {self._patience:g} s (collective_timeout_seconds)"
                )

    def _waited(self, key: str) -> bool:
        try:
            self._store.wait([key], timedelta(seconds=self._look))
        except dist.DistStoreError:  # the time is over
            return False
        return True

    def _missing(self, name: str) -> str:
        missing = [n for n in range(self.world) if not self._store.check([f"{name}/{n}"])]
        others = f" and {len(missing) - NAMED} others" if len(missing) > NAMED else ""
        return f"rank {', '.join(map(str, missing[:NAMED]))}{others}" if missing else "rank 0"
