"""Find out which rank is missing when the ranks wait in vain.

Every second each rank writes its progress into the process group's store: a beat. When a collective
fails or takes too long, the other ranks read there which rank is silent, and report it; NCCL and
gloo only know that some rank did not come. After a restart in place the store, which torchrun's
agent keeps, still has what the previous ranks wrote.

    <attempt>/rank-<n>   {"pid": 4242, "host": "algo-2", "local_rank": 0, "step": 12, "at": 1795…}
    <attempt>/end-<n>    {"reason": "…", "lost": true}; null for a rank that is alive, or was killed
    <attempt>/lost       the missing rank, as another found it, if the store ends with rank 0
    <attempt>/asked      how often a rank asked where the others are; each then responds
    <attempt>/at-<n>     {"asked": 1, "waits": false, "at": "at model.py:12 in forward, of …"}

A rank that is alive but does not come is the one that is in no collective while the others are in
one. If all ranks are in a collective, they wait for each other, and each is reported with its own.
"""

import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist

from training.in_place_restart import Attempt
from training.strategies.ranks import (
    Ranks,
    build_started_key,
    connect_watchdog_store,
    is_lost_peer_error,
    is_store_served_by_agent,
    read_ranks,
)
from training.watching import flight_recorder
from training.watching.flight_recorder import Whereabouts, find_whereabouts, locate_failure
from trainyard.common.errors import LostRankError

log = logging.getLogger(__name__)

BEAT = 1.0  # seconds between two beats
STORE_BEATS = 30  # largest number of beats for which rank 0 keeps the store after a failure
PATIENCE = 3  # beats that a rank may miss, because a busy interpreter may be late
SEARCH_BEATS = 3 * PATIENCE  # the longest search for a missing rank: it asks, and compares twice
MOST_NAMED = 8  # ranks that a message lists at most
# Share of the time limit of a collective after which a rank logs which ranks are not in one.
WARNING_SHARE = 0.8


def has_training_ended() -> bool:
    """Return whether every rank of the previous attempt ended successfully.

    In that case torchrun started this attempt for a process that died later, and ranks of other
    machines may be gone for good.
    """
    attempt = Attempt.from_environment()
    if not attempt.number or not is_store_served_by_agent():
        return False
    store, (_, _, world) = connect_watchdog_store(), read_ranks()
    keys = [f"{attempt.number - 1}/end-{rank}" for rank in range(world)]
    if not store.check(keys):
        return False
    ends = [json.loads(store.get(key)) for key in keys]
    return all(end == {"reason": "", "lost": False} for end in ends)


class Watch:
    """Signal that this rank is alive, and report the rank whose silence ended the job.

    Args:
        timeout_seconds: how long a rank may be silent before this process ends. A collective's own
            limit is the same, and ends the process first if the rank is alive but does something
            else.
        folder: folder for the flight recorder's dump; must survive a failed job.
        end: function that ends the process with an error, although its main thread may be stuck
            inside a collective.

    Attributes:
        step: function that returns the current step.
    """

    def __init__(
        self, ranks: Ranks, timeout_seconds: int, folder: Path, end: Callable[[LostRankError], None]
    ) -> None:
        self._ranks, self._timeout, self._folder, self._end = ranks, timeout_seconds, folder, end
        self.step: Callable[[], int] = lambda: 0
        self._attempt = Attempt.from_environment()
        self._last_answer, self._has_warned = 0, False
        self._broken: Whereabouts | None = None  # where this rank's collective failed
        self._done_event, self._ending = threading.Event(), threading.Event()
        self._watches = dist.is_initialized()
        if self._watches:
            self._store = connect_watchdog_store()
        self._thread = threading.Thread(target=self._run_thread, name="watchdog", daemon=True)

    def __enter__(self) -> "Watch":
        if self._watches:
            self._store.set(f"{self._attempt.number}/end-{self._ranks.rank}", "null")
            self._publish_beat()
            self._thread.start()
            self._previous_handler = signal.signal(signal.SIGTERM, self._handle_sigterm)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        """Publish how this rank ended.

        Raises:
            LostRankError: it ended because of another rank, which the message names.
        """
        if not self._watches:
            return
        lost_peer = isinstance(error, Exception) and is_lost_peer_error(error)
        self._broken = locate_failure(error) if lost_peer else None
        self._ending.set()
        try:
            if not lost_peer:
                self._publish_end(f"{kind.__name__}: {error}" if kind else "")
                return
            # Before the search, for which torchrun may not leave time.
            self._publish_end("", lost=True)
            lost = self._find_missing(error)
            self._report_lost(lost)
        finally:
            self._done_event.set()
            self._thread.join()
            signal.signal(signal.SIGTERM, self._previous_handler)
        raise lost from error

    def explain_restart(self) -> str:
        """Return why the ranks were restarted; empty at the first start, or without torchrun."""
        if not self._watches or not self._attempt.number:
            return ""
        before = self._attempt.number - 1
        ends = self._read_entries("end", before)
        lost_reasons = [end["reason"] for end in ends if end and end["lost"] and end["reason"]]
        own_reasons = [f"rank {n}: {end['reason']}" for n, end in enumerate(ends)
               if end and end["reason"] and not end["lost"]]  # fmt: skip
        last_beats = [entry["at"] if entry else 0.0 for entry in self._read_entries("rank", before)]
        gone = sorted(
            (rank for rank, end in enumerate(ends) if end is None), key=last_beats.__getitem__
        )
        silent = [
            self._describe_ranks([rank], "ended without a word, killed or crashed", before)
            # Only the first: torchrun may have killed the others before they could report.
            for rank in gone[:1]
        ]
        reason = (own_reasons or lost_reasons or silent or ["torchrun did not say why"])[0]
        return f"restart {self._attempt.number} of {self._attempt.max_restarts}: {reason}"

    # This rank's signs of life.

    def _handle_sigterm(self, number: int, frame: object) -> None:
        """Handle SIGTERM outside of the training loop: torchrun stops the other ranks when one
        is dead.
        """
        self._publish_end("", lost=True)
        os._exit(128 + number)

    def _run_thread(self) -> None:
        """Run the watchdog's thread; it checks the other ranks only if this rank makes no
        progress.
        """
        began, step = time.monotonic(), -1
        while not self._done_event.wait(BEAT):
            try:
                self._publish_beat()
                # Adding 0 reads the counter, even if no rank has asked yet.
                self._publish_answer(self._store.add(self._question_key, 0))
                # The ranks of another machine have already been restarted.
                if self._attempt.will_restart and self._store.check(
                    [build_started_key(self._attempt.number + 1)]
                ):
                    return self._end_if_overtaken()
                if reason := self._read_published_failure():
                    return self._end_with_reason(reason)
                if self.step() != step:
                    began, step = time.monotonic(), self.step()
                elif time.monotonic() - began > self._timeout / 2:
                    if late := self._find_silent(self._timeout):
                        return self._give_up(self._describe_ranks(late, self._silence_text))
                    self._warn_of_idle_ranks()
                    self._done_event.wait(self._timeout / 10)
            except dist.DistError as error:
                log.warning("the ranks' store is gone: %s", error)
                return

    def _publish_beat(self) -> None:
        """Write this rank's process, host, step and the time into the store."""
        me = {"pid": os.getpid(), "host": socket.gethostname(), "at": time.time(),
              "local_rank": self._ranks.local_rank, "step": self.step()}  # fmt: skip
        self._store.set(f"{self._attempt.number}/rank-{self._ranks.rank}", json.dumps(me))

    def _publish_end(self, reason: str, *, lost: bool = False) -> None:
        """Write into the store how this rank ended; ``lost``: because of another rank."""
        end = json.dumps({"reason": reason, "lost": lost})
        with suppress(dist.DistError):  # rank 0 may already be gone, and the store with it
            self._store.set(f"{self._attempt.number}/end-{self._ranks.rank}", end)

    def _report_lost(self, lost: LostRankError) -> None:
        """Publish which rank is missing.

        If rank 0 serves the store (mpirun), its end breaks the connections, and a rank that waits
        only for rank 0 would consider rank 0 missing. So rank 0 ends last.
        """
        self._publish_end(str(lost), lost=True)
        if is_store_served_by_agent():
            return
        with suppress(dist.DistError):
            # Without the path of this rank's dump, because each rank that reads this adds its own.
            self._store.set(f"{self._attempt.number}/lost", str(lost).partition("; this rank's")[0])
            if self._ranks.rank == 0:
                self._keep_store()

    def _read_published_failure(self) -> str:
        """Return the failure that another rank published, or "" if there is none.

        Used when the store ends with rank 0 and this rank waits for a rank that is alive.
        """
        key = f"{self._attempt.number}/lost"
        if is_store_served_by_agent() or self._ending.is_set() or not self._store.check([key]):
            return ""
        return self._store.get(key).decode()

    def _end_with_reason(self, reason: str) -> None:
        """End with the reason that another rank published, unless this rank's own collective fails
        in the next beats.
        """
        if not self._ending.wait(PATIENCE * BEAT):
            self._give_up(reason)
        # The main thread now searches itself, and needs this rank's beats.
        while not self._done_event.wait(BEAT):
            with suppress(dist.DistError):
                self._publish_beat()

    def _keep_store(self) -> None:
        """Keep the store until every other rank has reported its end, or was silent for a while."""
        start = time.monotonic()
        last_beats: dict[int, float] = {}
        spoke: dict[int, float] = {}
        while (now := time.monotonic()) - start < STORE_BEATS * BEAT:
            beats = self._read_beats(looking=True)
            spoke = {r: spoke[r] if last_beats.get(r) == beat else now for r, beat in beats.items()}
            last_beats = beats
            if all(now - timestamp >= PATIENCE * BEAT for timestamp in spoke.values()):
                return
            time.sleep(BEAT / 10)

    def _find_silent(self, seconds: float) -> list[int]:
        """Return the ranks that have not ended, and sent no beat for ``seconds`` and during this
        call.
        """
        before = self._read_beats()
        late = [rank for rank, beat in before.items() if time.time() - beat >= seconds]
        if late:
            # Compare twice, because the machines' clocks differ.
            self._done_event.wait(PATIENCE * BEAT)
            after = self._read_beats()
            late = [rank for rank in late if after.get(rank) == before[rank]]
        return late

    def _read_beats(self, *, looking: bool = False) -> dict[int, float]:
        """Return a mapping of each other rank that has not ended to the time of its last beat.

        Args:
            looking: whether to include ranks that are ending and still search for the missing one.
        """
        number = self._attempt.number
        entries = zip(
            self._read_entries("rank", number), self._read_entries("end", number), strict=True
        )
        beats = {
            rank: entry["at"] if entry else 0.0
            for rank, (entry, end) in enumerate(entries)
            if not end or (looking and end["lost"] and not end["reason"])
        }
        beats.pop(self._ranks.rank, None)
        return beats

    def _end_if_overtaken(self) -> None:
        """End this rank if no failed collective does so, because the others wait in a later
        attempt.

        If no collective was running, as between two steps, this reports which rank is gone. It
        checks twice: a rank that torchrun replaces at once has sent a beat just before the first
        check.
        """
        for _ in range(2):
            if silent := self._find_silent(PATIENCE * BEAT):
                return self._give_up(self._describe_ranks(silent, "is gone, killed or crashed"))
            if failure := self._find_failure():
                return self._give_up(failure)
            if self._done_event.wait(PATIENCE * BEAT):
                return None
        return self._give_up("the ranks of another machine were started again")

    def _give_up(self, message: str) -> None:
        """End this process from the watchdog's thread, because the main thread may be stuck
        forever.
        """
        if self._done_event.is_set():
            return
        lost = LostRankError(message + self._dump_collectives())
        self._report_lost(lost)
        faulthandler.dump_traceback(file=sys.__stderr__ or 2)
        self._end(lost)

    # Which rank waits, and which rank the others wait for.

    @property
    def _question_key(self) -> str:
        return f"{self._attempt.number}/asked"

    def _publish_answer(self, question: int) -> None:
        """Publish what this rank is doing, once for each question.

        A rank that does not wait also writes all its stacks to the log.
        """
        if question <= self._last_answer:
            return
        self._last_answer, state = question, self._broken or find_whereabouts()
        answer = {"asked": question, "waits": state.waits, "at": state.location}
        self._store.set(f"{self._attempt.number}/at-{self._ranks.rank}", json.dumps(answer))
        if not state.waits:
            faulthandler.dump_traceback(file=sys.__stderr__ or 2)

    def _ask_all_ranks(self) -> dict[int, dict[str, Any]]:
        """Ask all ranks what they are doing; return the response of each rank that responds in
        time.
        """
        question = self._store.add(self._question_key, 1)
        end = time.monotonic() + PATIENCE * BEAT
        while True:
            # Other ranks may ask at the same time.
            self._publish_answer(self._store.add(self._question_key, 0))
            answers = dict(enumerate(self._read_entries("at", self._attempt.number)))
            current_answers = {
                rank: answer
                for rank, answer in answers.items()
                if answer and answer["asked"] >= question
            }
            if len(current_answers) == self._ranks.world or time.monotonic() > end:
                return current_answers
            time.sleep(BEAT / 10)

    def _warn_of_idle_ranks(self) -> None:
        """Log, once, which rank this rank waits for, before NCCL ends the processes without a
        message.
        """
        seconds = 0.0 if self._has_warned else find_whereabouts().seconds
        if seconds > WARNING_SHARE * self._timeout:
            self._has_warned, answers = True, self._ask_all_ranks()
            waiting = [rank for rank, answer in answers.items() if answer["waits"]]
            if waiting[:1] == [self._ranks.rank] and (
                reason := self._describe_idle(answers, seconds)
            ):
                log.warning("%s", reason)

    def _describe_idle(self, answers: Mapping[int, Mapping[str, Any]], seconds: float) -> str:
        """Return which ranks are in no collective while others are, and where; "" if there is
        none.
        """
        if not (idle := [rank for rank, answer in answers.items() if not answer["waits"]]):
            return ""
        how = (
            f"lives, but lets the others wait for {seconds:.0f} s and is in no collective: "
            f"{answers[idle[0]]['at']} (its log has all stacks)"
        )
        more = f"; nor is rank {', '.join(map(str, idle[1:MOST_NAMED]))}" if idle[1:] else ""
        return self._describe_ranks(idle[:1], how) + more

    # Reports of the other ranks.

    def _find_missing(self, error: Exception) -> LostRankError:
        """Find the missing rank, which takes some beats; return the error that names it."""
        patient = "Timed out" in str(error) or "timeout" in str(error).lower()
        try:
            # Ask at once, because a rank that sleeps may wake up.
            answers = self._ask_all_ranks() if patient else {}
            silent, failure = self._find_silent(0), self._find_failure()
            if silent:
                how = self._silence_text if patient else "is gone, killed or crashed"
                message = self._describe_ranks(silent, how)
            elif failure:
                message = failure
            elif patient:
                message = self._describe_waits(answers)
            else:
                message = self._wait_for_finding() or (
                    f"the connection of the ranks broke, though all of them live: {error}"
                )
        except dist.DistError:
            message = f"rank 0, which keeps the ranks' store, is gone: {error}"
        return LostRankError(message + self._dump_collectives())

    def _wait_for_finding(self) -> str:
        """Wait until another rank reports why it lost a third one; return that, or "" if none does.

        gloo closes a rank's connections when its collective times out, and that rank then searches
        for some beats.
        """
        last = time.monotonic() + SEARCH_BEATS * BEAT
        while True:
            ends = self._read_entries("end", self._attempt.number)
            del ends[self._ranks.rank]
            lost_reasons = [end["reason"] for end in ends if end and end["lost"]]
            findings = [reason for reason in lost_reasons if reason]
            if findings or not lost_reasons or time.monotonic() > last:
                # Without the path of that rank's dump.
                return findings[0].partition("; this rank's")[0] if findings else ""
            time.sleep(BEAT / 10)

    @property
    def _silence_text(self) -> str:
        return f"fell silent for {self._timeout} s"

    def _describe_ranks(self, ranks: list[int], how: str, attempt: int | None = None) -> str:
        """Describe ranks: ``rank 1 (…) fell silent for 120 s; last seen in step 13, …``."""
        entries = self._read_entries("rank", self._attempt.number if attempt is None else attempt)
        names = ", ".join(_describe_rank(rank, entries[rank]) for rank in ranks)
        step = min((entries[rank] or {}).get("step", 0) for rank in ranks) + 1
        suffix = f", rank {self._ranks.rank} in step {self.step() + 1}" if attempt is None else ""
        return f"{names} {how}; last seen in step {step}{suffix}"

    def _find_failure(self) -> str:
        """Return the reason of another rank that failed by itself, or ""."""
        entries = self._read_entries("rank", self._attempt.number)
        for rank, end in enumerate(self._read_entries("end", self._attempt.number)):
            if end and end["reason"] and not end["lost"]:
                return f"{_describe_rank(rank, entries[rank])} ended with {end['reason']}"
        return ""

    def _describe_waits(self, answers: Mapping[int, Mapping[str, Any]]) -> str:
        """Describe what the ranks wait for if all of them are alive.

        According to their responses, one does something else, or they are in different collectives.
        """
        if idle := self._describe_idle(answers, self._timeout):
            return idle
        rank_lines = [
            f"rank {rank} {answer['at']}" for rank, answer in [*answers.items()][:MOST_NAMED]
        ]
        return (
            f"all ranks live, but wait for each other for {self._timeout} s in step "
            f"{self.step() + 1}: {'; '.join(rank_lines)}"
        )

    def _read_entries(self, kind: str, attempt: int) -> list[dict[str, Any] | None]:
        """Return every rank's entry of this kind in the store, or None for a rank that wrote none.

        If all wrote, this takes only two requests, because there may be many ranks.
        """
        keys = [f"{attempt}/{kind}-{rank}" for rank in range(self._ranks.world)]
        if self._store.check(keys):
            return [json.loads(value) for value in self._store.multi_get(keys)]
        return [json.loads(self._store.get(k)) if self._store.check([k]) else None for k in keys]

    def _dump_collectives(self) -> str:
        """Save the flight recorder's last collectives; return the end of a message, with their
        path.
        """
        path = flight_recorder.dump_collectives(self._folder, self._ranks.rank)
        return f"; this rank's last collectives: {path}" if path else ""


def _describe_rank(rank: int, entry: dict[str, Any] | None) -> str:
    """Return a rank's description: ``rank 3 (pid 4242 on algo-2, local rank 1)``."""
    if entry is None:
        return f"rank {rank}"
    return f"rank {rank} (pid {entry['pid']} on {entry['host']}, local rank {entry['local_rank']})"
