"""The training will take longer, and cost more, than planned."""

from statistics import median
from typing import Self

from pydantic import Field, FiniteFloat, model_validator

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

RECENT = 20
"""Lines whose median says how long the steps to come take."""

LEAST = 5
"""After each so many lines it is reckoned anew."""


class CostBeyondPlan(RuleSettings):
    """At its pace the training ends later than planned."""

    minutes: FiniteFloat | None = Field(default=None, gt=0)
    """Minutes of training that are planned for this job; a recipe's max_runtime_minutes if left
    out, after which SageMaker stops it."""

    usd: FiniteFloat | None = Field(default=None, gt=0)
    """The same as money, with usd_an_hour; the lower of the two counts."""

    usd_an_hour: FiniteFloat | None = Field(default=None, gt=0)
    """What all machines of the job cost together."""

    times: FiniteFloat = Field(default=1.0, gt=0)
    """So many times the plan may be reached."""

    @property
    def planned(self) -> float | None:
        """Minutes; None where there is no plan."""
        bought = self.usd / self.usd_an_hour * 60 if self.usd and self.usd_an_hour else None
        return min((one for one in (self.minutes, bought) if one is not None), default=None)

    @model_validator(mode="after")
    def _money_needs_its_price(self) -> Self:
        if (self.usd is None) != (self.usd_an_hour is None):
            raise ValueError("usd and usd_an_hour belong together: set both, or minutes")
        return self


def check(history: History, settings: CostBeyondPlan, plan: Plan) -> Finding | None:
    """Minutes of this process's training, those that were and those to come."""
    recent = history.last("step_seconds", RECENT)
    if settings.planned is None or not plan.max_steps or len(history.lines) % LEAST:
        return None
    if not recent:
        return None
    now, usual = history.lines[-1]["step"], median(recent)
    minutes = _spent(history, plan) + (plan.max_steps - now) * usual / 60
    most = settings.times * settings.planned
    if minutes <= most:
        return None
    price = settings.usd_an_hour
    money = f", {minutes / 60 * price:.2f} USD" if price else ""
    return Finding(
        minutes,
        most,
        f"at {usual:.3g} s a step this job needs {minutes:.4g} minutes of training{money}, and "
        f"{settings.planned:.4g} minutes are planned",
        "raise max_runtime_minutes if that is meant, lower max_steps, or look at where a step's "
        "time goes",
    )


def _spent(history: History, plan: Plan) -> float:
    """Minutes of the lines of this process."""
    seconds, before = 0.0, float(plan.begun)
    for line in history.lines:
        if line["step"] > plan.begun:
            seconds += (line["step"] - before) * line.get("step_seconds", 0.0)
            before = line["step"]
    return seconds / 60


RULE = Rule(CostBeyondPlan, check)
