"""Stop all ranks after the same step when one of them is asked to stop, as by a spot interruption.

``loop.Loop`` then saves a checkpoint. On AWS, SIGTERM reaches the ranks only through our driver.

The ranks agree through the process group's store, each in a separate thread, without the device: so
even a rank that waits inside a collective responds. The store's keys:

    asked      a rank got SIGTERM, or a rule asked for a stop; the value is which one, and why
    at-<rank>  the last step that the rank had begun when it saw ``asked``; it begins no other step
    until      the last step of the training: the largest of these, or -1 to continue; written once

No rank has begun a step after the largest one, so all ranks can still stop there. A rank that is
behind continues up to it, because a step that one rank has begun needs all of them to end. A rank
that died does not respond: after ``PATIENCE`` seconds the others continue, and then notice its
absence as usual.
"""

import logging
import signal
import threading
import time

import torch.distributed as dist

from training.in_place_restart import Attempt
from training.strategies.ranks import NETWORK, Ranks, connect_store

log = logging.getLogger(__name__)

POLL = 1.0
"""Seconds between two checks for a stop request. A check costs the store 20 µs: with 1,000 ranks
that is 2 % of one core of the machine that hosts it.
"""

HURRY = 0.2
"""Seconds between two checks after a stop was requested."""

PATIENCE = 20.0
"""Seconds to wait for the other ranks, which respond within ``POLL`` if they are alive."""

GO_ON = -1
SIGTERM = "SIGTERM"


class Agreement:
    """One rank's part in the agreement on the last step.

    ``poll_store`` and ``may_begin`` may run in different threads.

    Args:
        last_step: the last step that this rank has begun or finished.
    """

    def __init__(self, store: dist.Store, rank: int, world: int, last_step: int) -> None:
        self._store, self._rank, self._world = store, rank, world
        self._last_step, self._is_holding = last_step, False
        self._until: int | None = None
        self._since = 0.0
        self._condition = threading.Condition()
        self.stop_requested = False
        """Set this to True to request a stop. It is a plain flag, so a signal handler may set
        it.
        """
        self.reason = SIGTERM
        """Reason of the stop: this rank's own if it requested the stop; once the stop is settled,
        that of the rank whose request is in the store.
        """

    @property
    def has_seen_request(self) -> bool:
        """True if this rank knows that a stop was requested."""
        return self._is_holding

    def may_begin(self, step: int) -> bool | None:
        """Return whether this rank may train ``step``; None: not known yet, so call again."""
        with self._condition:
            if self._until is not None:
                return self._until == GO_ON or step <= self._until
            if self._is_holding:
                return None
            self._last_step = step
            return True

    def wait(self, seconds: float) -> None:
        """Wait until the ranks have agreed, for at most ``seconds``."""
        with self._condition:
            if self._until is None:
                self._condition.wait(seconds)

    def poll_store(self, now: float) -> bool:
        """Publish and read the requests and steps in the store; return True once the last step is
        agreed on.
        """
        if not self._is_holding:
            if self.stop_requested:
                self._store.set("asked", self.reason)
            elif not self._store.check(["asked"]):
                return False
            self._since = now
            with self._condition:
                self._is_holding = True  # from here on ``_last_step`` does not change
            self._store.set(f"at-{self._rank}", str(self._last_step))
        if self._store.check(["until"]):
            until = self._store.get("until")
        elif (proposal := self._propose_step(now)) is not None:
            # ``compare_set`` keeps the first proposal, so all ranks read the same step.
            until = self._store.compare_set("until", "", str(proposal))
        else:
            return False
        if self._store.check(["asked"]):
            self.reason = self._store.get("asked").decode()
        self._store_agreed_step(int(until))
        return True

    def give_up(self) -> None:
        """Continue the training without an agreed stop, because the store is gone. The training
        will fail for the same cause.
        """
        self._store_agreed_step(GO_ON)

    def _propose_step(self, now: float) -> int | None:
        """Return the last step to propose, ``GO_ON`` to propose no stop, or None to propose nothing
        yet.
        """
        if self._rank == 0:
            keys = [f"at-{rank}" for rank in range(self._world)]
            if self._store.check(keys):
                return max(int(step) for step in self._store.multi_get(keys))
        # A rank that died never responds: after PATIENCE the others continue, and notice it as
        # usual.
        return GO_ON if now - self._since > PATIENCE else None

    def _store_agreed_step(self, until: int) -> None:
        """Record the agreed last step, and wake up the threads that wait for it."""
        with self._condition:
            self._until = until
            self._condition.notify_all()


class Stop:
    """Context in which SIGTERM requests a stop between two steps instead of ending the process.

    AWS's drivers do not pass SIGTERM on to the ranks (sagemaker-training-toolkit#125 #173); the one
    in steps/train/driver does. What a lost node costs is bounded by checkpoint_interval.

    Args:
        last_step: number of steps already trained.
    """

    def __init__(self, ranks: Ranks, last_step: int) -> None:
        self._agreement: Agreement | None = None
        self._reasons: list[str] = []
        if ranks.world > 1:
            store = dist.PrefixStore(
                f"stop-{Attempt.from_environment().number}", connect_store(NETWORK)
            )
            self._agreement = Agreement(store, ranks.rank, ranks.world, last_step)
        self._end_event = threading.Event()
        self._thread = threading.Thread(target=self._poll_agreement, name="stop", daemon=True)

    def __enter__(self) -> "Stop":
        self._previous_handler = signal.signal(
            signal.SIGTERM, lambda *_: self.request_stop(SIGTERM)
        )
        if self._agreement is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_event.set()
        if self._agreement is not None:
            # The store responds within NETWORK seconds or fails, so the thread cannot take longer.
            self._thread.join(NETWORK)
        signal.signal(signal.SIGTERM, self._previous_handler)

    @property
    def reason(self) -> str:
        """Origin of the stop request, followed by a colon and the reason."""
        if self._agreement is not None:
            return self._agreement.reason
        return self._reasons[0] if self._reasons else SIGTERM

    def request_stop(self, reason: str) -> None:
        """Request that all ranks stop; never blocks, so a signal handler may call it."""
        self._reasons.append(reason)
        if self._agreement is not None:
            # Set the reason before the flag: the polling thread publishes it as soon as it sees the
            # flag.
            if not self._agreement.stop_requested:
                self._agreement.reason = reason
            self._agreement.stop_requested = True

    def may_begin(self, step: int) -> bool:
        """Return whether ``step`` may be trained; block while the ranks agree on the last step."""
        agreement = self._agreement
        if agreement is None:
            return not self._reasons
        while (answer := agreement.may_begin(step)) is None:
            agreement.wait(POLL)
        return answer

    def _poll_agreement(self) -> None:
        """Poll the store, in a thread, until the ranks have agreed or the context ends."""
        assert self._agreement is not None  # noqa: S101 (the thread needs it to start)
        while not self._end_event.wait(HURRY if self._agreement.has_seen_request else POLL):
            try:
                if self._agreement.poll_store(time.monotonic()):
                    return
            except dist.DistError as error:
                log.warning("the ranks' store is gone, so no stop can be agreed on: %s", error)
                return self._agreement.give_up()
