"""What a run that would start now would do and cost, as ``trainyard plan`` foresees it."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainyard.console.account import Account
from trainyard.console.actions.action import Table
from trainyard.console.wording import usd
from trainyard.plan.caching import Outcome, predict
from trainyard.plan.cost import Cost, Range, estimate, total
from trainyard.plan.history import History
from trainyard.plan.plan import started_with
from trainyard.plan.prices import load
from trainyard.runs.table import duration
from trainyard.service import service_errors

SEEN = 2
"""Earlier runs that expected times are from, at least; predict may read more of them."""

HEAD = ("step", "it would", "why", "expected time", "expected cost", "at most")


def foreseen(
    account: Account, there: Mapping[str, Any], given: Mapping[str, str], only: Sequence[str] = ()
) -> list[Table]:
    """A table of the steps with their sum.

    Args:
        there: DescribePipeline's answer.
        given: parameters of the run.
        only: the steps that run at all; empty for all.
    """
    name = there["PipelineName"]
    document = started_with(json.loads(there["PipelineDefinition"]), given)
    with service_errors(f"foreseeing a run of {name}"):
        history = History(account.sagemaker, name, s3=account.s3)
        while len(history.runs) < SEEN and history.more():
            pass  # predict reads none of them for steps whose cache is off
        outcomes = [
            one
            for one in predict(document, name, history, datetime.now(UTC))
            if not only or one.step in only
        ]
        costs = estimate(document, outcomes, history, load(account.sagemaker.meta.region_name))
    rows = [_row(outcome, cost) for outcome, cost in zip(outcomes, costs, strict=True)]
    whole = total(document, costs)
    sums = (_times(whole.expected), _sums(whole.usd_expected), _most(whole.usd_limit))
    rows.append(("together", "", "if every branch of a condition ran", *sums))
    return [Table(title="What of it would run, and what it may cost", head=HEAD, rows=rows)]


def _row(outcome: Outcome, cost: Cost) -> tuple[str, ...]:
    answer = "be answered from the cache" if outcome.answer == "cached" else "run"
    why = "; ".join(filter(None, [outcome.why, outcome.when]))
    return (outcome.step, answer, why, _times(cost.expected), _sums(cost.usd_expected),
            _most(cost.usd_limit))  # fmt: skip


def _times(found: Range) -> str:
    if found.low is None or found.high is None:
        return "not known"
    low, high = duration(found.low), duration(found.high)
    return low if low == high else f"{low} – {high}"


def _sums(found: Range) -> str:
    if found.low is None or found.high is None:
        return "not known"
    low, high = usd(found.low), usd(found.high)
    return low if low == high else f"{low} – {high}"


def _most(amount: float | None) -> str:
    return "not known" if amount is None else usd(amount)
