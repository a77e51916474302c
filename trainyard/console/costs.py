"""What runs have cost so far: read in the background, for the runs that somebody looks at.

The sum over the jobs of an execution's steps; a step whose result came from another execution costs
nothing. Steps name their last job only: what earlier attempts of it cost is not in the sum.
"""

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import cast

from flask import current_app

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.run_record import Run
from trainyard.plan.prices import Prices, load
from trainyard.runs.execution import Step
from trainyard.runs.spent import CHARGED, spent
from trainyard.service import service_errors

log = logging.getLogger(__name__)

KEPT = 100_000
"""Runs whose cost is remembered."""

WAITING = 500
"""Runs that wait to be read; those that were asked for last come first, the oldest are dropped."""

GOOD = 30.0
"""Seconds for which the cost of what runs is good, and what could not be read is left alone."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run has cost so far."""

    usd: float | None
    """None where nothing could be read."""
    is_whole: bool
    """Whether all that is charged is in it: some machines have no price, some jobs are others'."""
    is_estimated: bool
    """Whether a price was derived."""
    changed: float
    """When the run had been modified as it was read."""
    until: float
    """Until when that is good."""


class Costs:
    """Costs of the runs of one account. Any thread may ask."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._known: OrderedDict[str, Cost] = OrderedDict()
        """By ARN."""
        self._wanted: OrderedDict[str, Run] = OrderedDict()
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None
        self.version = 0
        """Grows with each cost that was read."""

    def known(self, arn: str) -> Cost | None:
        """What was read of the run with that ARN, however long ago."""
        return self._known.get(arn)

    def want(self, arn: str, run: Run) -> None:
        """Read the run's cost soon, unless what is known of it is still good."""
        known = self._known.get(arn)
        if known and known.changed == run.changed and time.monotonic() < known.until:
            return
        with self._lock:
            self._wanted[arn] = run
            self._wanted.move_to_end(arn)
            while len(self._wanted) > WAITING:
                self._wanted.popitem(last=False)
            if self._reading is None:
                self._reading = threading.Thread(target=self._read_all, daemon=True)
                self._reading.start()

    @cached_property
    def _prices(self) -> Prices:
        return load(self._account.sagemaker.meta.region_name)

    def _read_all(self) -> None:
        while not self._account.ended.is_set():
            with self._lock:
                if not self._wanted:
                    self._reading = None
                    return
                arn, run = self._wanted.popitem()
            began = time.thread_time()
            cost = self._read(arn, run)
            with self._lock:
                self._known[arn] = cost
                self._known.move_to_end(arn)
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
            self.version += 1
            # who waits for a page comes first, to the processor as to AWS
            pause = max(self._account.seconds / 20, 2 * (time.thread_time() - began))
            self._account.ended.wait(pause)

    def _read(self, arn: str, run: Run) -> Cost:
        soon = time.monotonic() + GOOD
        try:
            steps = self._account.execution_of(arn).steps()
            each = [self._spent(step) for step in steps if not (step.cached or step.reused)]
        except ServiceError as error:
            log.warning("the cost of %s is not known: %s", arn, error)
            return Cost(None, False, False, run.changed, soon)
        except Exception:  # the edge of a thread: one run's defect must not end all the others'
            log.exception("the cost of %s cannot be told", arn)
            return Cost(None, False, False, run.changed, soon)
        return Cost(
            usd=sum(usd for usd, _ in each if usd is not None),
            is_whole=all(usd is not None for usd, _ in each),
            is_estimated=any(estimated for _, estimated in each),
            changed=run.changed,
            until=float("inf") if run.is_ended else soon,
        )

    def _spent(self, step: Step) -> tuple[float | None, bool]:
        """USD of the step, None where that cannot be told; whether a price of it is derived."""
        if step.job is None:
            return (None if CHARGED & set(step.metadata) else 0.0), False
        kind, name = step.job
        describe = getattr(self._account.sagemaker, _DESCRIBE[kind])
        with service_errors(f"reading {name}"):
            job = describe(**{f"{kind}Name": name})
        found = spent(kind, job, self._prices, datetime.now(UTC))
        return found.usd, found.estimated


_DESCRIBE = {
    "TrainingJob": "describe_training_job",
    "ProcessingJob": "describe_processing_job",
    "TransformJob": "describe_transform_job",
}


def costs() -> Costs:
    """The costs of the account of the request that is being answered."""
    return cast(Costs, current_app.extensions["trainyard-costs"])
