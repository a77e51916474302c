"""What earlier executions tell of a step: how long it takes, what it costs, why it ran again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainyard.console.account import Account
from trainyard.console.step.defined import UNCHANGING
from trainyard.language.evaluation import told_by
from trainyard.plan.cost import Cost, cost_of
from trainyard.plan.hindsight import ENOUGH, Hindsight, why_it_ran
from trainyard.plan.history import History
from trainyard.plan.prices import load
from trainyard.service import service_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """How the step went in one earlier execution."""

    execution: str
    """Its id."""

    started: datetime
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookback:
    """What is known of a step from executions before this one."""

    earlier: Sequence[Before]
    """Those in which it ran and succeeded, the newest first."""

    cost: Cost | None
    """What its machines, and its time limit, let expect; None for a step without machines."""

    hindsight: Hindsight


def lookback(here: Account, arn: str, name: str, began: datetime) -> Lookback:
    """What the (at most) :data:`~trainyard.plan.hindsight.ENOUGH` executions before tell.

    ``began``: when this one did.

    Raises:
        ServiceError: AWS refused.
    """

    def read() -> Lookback:
        with service_errors(f"reading the executions before {arn}"):
            return _read(here, arn, name, began)

    return here.lately(("step: lookback", arn, name), read, UNCHANGING)


def _read(here: Account, arn: str, name: str, began: datetime) -> Lookback:
    history = History(here.sagemaker, told_by(arn)["PipelineName"], before=began)
    found = why_it_ran(arn, name, began, history)
    while len(history.runs) < ENOUGH and history.more():
        pass
    earlier = [
        Before(execution=run.id, started=done.started, seconds=done.seconds)
        for run in history.runs
        if (done := run.steps.get(name)) and done.source is None
    ]
    run = history.run(arn)
    prices = load(here.sagemaker.meta.region_name)
    cost = cost_of(name, run.document, run.parameters, history, prices) if run else None
    return Lookback(earlier=earlier, cost=cost, hindsight=found)
