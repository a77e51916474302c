"""A stop requested of one rank ends all ranks after the same step.

The device takes no part: the ranks agree through the process group's store, each in a separate
thread, so even a rank that waits inside a collective answers.

    asked      a rank got SIGTERM, or a rule asked for a stop; which one, and why
    at-<rank>  the step that the rank had begun when it saw that; it begins no further one
    until      the last step of all: the largest of these, or -1 to go on; written once

No rank has begun a step after the largest, so each can still stop there; and a rank that is behind
goes on to it, since a step that one rank has begun needs all of them to end. A rank that died does
not answer: after some seconds the others go on, and then notice its absence as usual.
"""

import logging
import signal
import threading
import time

import torch.distributed as dist

from training.in_place_restart import Attempt
from training.strategies.ranks import NETWORK, Ranks, connect

log = logging.getLogger(__name__)

POLL = 1.0
"""Seconds between two looks for a stop request. A look costs the store 20 µs: 1,000 ranks take 2 %
of one core of the machine that hosts it."""

HURRY = 0.2
"""Seconds between two looks after a stop was requested."""

PATIENCE = 20.0
"""Seconds to wait for the other ranks, which answer within ``POLL`` if they are alive."""

GO_ON = -1
SIGTERM = "SIGTERM"


class Agreement:
    """One rank's part in the agreement; ``poll_store`` and ``may_begin`` may run in different
    threads.

    Args:
        begun: the last step that this rank has begun or finished.
    """

    def __init__(self, store: dist.Store, rank: int, world: int, last_step: int) -> None:
        self._store, self._rank, self._world = store, rank, world
        self._last_step, self._is_holding = last_step, False
        self._until: int | None = None
        self._since = 0.0
        self._condition = threading.Condition()
        self.stop_requested = False
        """Set it to request a stop; it is a plain flag, so a signal handler may set it."""
        self.reason = SIGTERM
        """Reason of the stop: this rank's own when it asks; once settled, that of the rank that
        asked."""

    @property
    def has_seen_request(self) -> bool:
        """True if this rank knows that a stop was requested."""
        return self._is_holding

    def may_begin(self, step: int) -> bool | None:
        """Return whether this rank trains step ``step``; None if not yet known: ask again."""
        with self._condition:
            if self._until is not None:
                return self._until == GO_ON or step <= self._until
            if self._is_holding:
                return None
            self._last_step = step
            return True

    def wait(self, seconds: float) -> None:
        """Wait until the ranks have agreed, at most ``seconds``."""
        with self._condition:
            if self._until is None:
                self._condition.wait(seconds)

    def poll_store(self, now: float) -> bool:
        """Exchange news with the store; True once the stop is settled."""
        if not self._is_holding:
            if self.stop_requested:
                self._store.set("asked", self.reason)
            elif not self._store.check(["asked"]):
                return False
            self._since = now
            with self._condition:
                self._is_holding = True  # from here on ``_last_step`` stays as it is
            self._store.set(f"at-{self._rank}", str(self._last_step))
        if self._store.check(["until"]):
            until = self._store.get("until")
        elif (proposal := self._propose_step(now)) is not None:
            # The first proposal stays, so that all ranks read the same step.
            until = self._store.compare_set("until", "", str(proposal))
        else:
            return False
        if self._store.check(["asked"]):
            self.reason = self._store.get("asked").decode()
        self._settle(int(until))
        return True

    def give_up(self) -> None:
        """Give up on agreeing: the store is gone. Training goes on, and will meet the cause."""
        self._settle(GO_ON)

    def _propose_step(self, now: float) -> int | None:
        """Return the step that this rank proposes, if any; the first proposal in the store wins."""
        if self._rank == 0:
            keys = [f"at-{rank}" for rank in range(self._world)]
            if self._store.check(keys):
                return max(int(step) for step in self._store.multi_get(keys))
        # A rank that died does not answer; the others go on, and notice that as usual.
        return GO_ON if now - self._since > PATIENCE else None

    def _settle(self, until: int) -> None:
        with self._condition:
            self._until = until
            self._condition.notify_all()


class Stop:
    """Context in which SIGTERM is remembered, not obeyed: the training ends between two steps.

    AWS's drivers do not pass SIGTERM on to the ranks (sagemaker-training-toolkit#125 #173), so
    it serves other launchers that do; what a lost node costs is bounded by checkpoint_interval.

    Args:
        begun: number of steps already trained.
    """

    def __init__(self, ranks: Ranks, last_step: int) -> None:
        self._agreement: Agreement | None = None
        self._reasons: list[str] = []
        if ranks.world > 1:
            store = dist.PrefixStore(f"stop-{Attempt.read().number}", connect(NETWORK))
            self._agreement = Agreement(store, ranks.rank, ranks.world, last_step)
        self._end_event = threading.Event()
        self._thread = threading.Thread(target=self._poll_agreement, name="stop", daemon=True)

    def __enter__(self) -> "Stop":
        self._previous_handler = signal.signal(signal.SIGTERM, lambda *_: self.ask(SIGTERM))
        if self._agreement is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_event.set()
        if self._agreement is not None:
            # The store answers within this time, or fails: longer the thread cannot wait for it.
            self._thread.join(NETWORK)
        signal.signal(signal.SIGTERM, self._previous_handler)

    @property
    def reason(self) -> str:
        """Origin of the stop request, followed by a colon and the reason."""
        if self._agreement is not None:
            return self._agreement.reason
        return self._reasons[0] if self._reasons else SIGTERM

    def ask(self, reason: str) -> None:
        """Ask all ranks to stop; never blocks, so a signal handler may call it."""
        self._reasons.append(reason)
        if self._agreement is not None:
            # The reason first: the thread that polls passes it on as soon as it sees the flag.
            if not self._agreement.stop_requested:
                self._agreement.reason = reason
            self._agreement.stop_requested = True

    def may_begin(self, step: int) -> bool:
        """Return whether step ``step`` is trained; blocks while the ranks agree on it."""
        agreement = self._agreement
        if agreement is None:
            return not self._reasons
        while (answer := agreement.may_begin(step)) is None:
            agreement.wait(POLL)
        return answer

    def _poll_agreement(self) -> None:
        assert self._agreement is not None  # noqa: S101 (its thread is not started without)
        while not self._end_event.wait(HURRY if self._agreement.has_seen_request else POLL):
            try:
                if self._agreement.poll_store(time.monotonic()):
                    return
            except dist.DistError as error:
                log.warning("the ranks' store is gone, so no stop can be agreed on: %s", error)
                return self._agreement.give_up()
