"""The training will take longer, and cost more, than planned."""

from statistics import median
from typing import Self

from pydantic import Field, FiniteFloat, model_validator

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

RECENT = 20
"""Number of lines whose median estimates the duration of the remaining steps."""

LEAST = 5
"""The estimate is repeated after this number of lines."""


class CostBeyondPlan(RuleSettings):
    """At its pace the training ends later than planned."""

    minutes: FiniteFloat | None = Field(default=None, gt=0)
    """Planned minutes of training for this job; if left out, a recipe's max_runtime_minutes, after
    which SageMaker stops it."""

    usd: FiniteFloat | None = Field(default=None, gt=0)
    """Planned cost in US dollars, with usd_an_hour; the lower of the two limits counts."""

    usd_an_hour: FiniteFloat | None = Field(default=None, gt=0)
    """Price per hour of all machines of the job together, in US dollars."""

    @property
    def planned_minutes(self) -> float | None:
        """Planned minutes, or None without a plan."""
        bought = self.usd / self.usd_an_hour * 60 if self.usd and self.usd_an_hour else None
        return min((limit for limit in (self.minutes, bought) if limit is not None), default=None)

    @model_validator(mode="after")
    def _check_price(self) -> Self:
        if (self.usd is None) != (self.usd_an_hour is None):
            raise ValueError("usd and usd_an_hour belong together: set both, or minutes")
        return self


def check(history: History, settings: CostBeyondPlan, plan: Plan) -> Finding | None:
    """Compare this process's minutes of training, spent and estimated, with the plan."""
    recent = history.list_last_values("step_seconds", RECENT)
    if settings.planned_minutes is None or not plan.max_steps or len(history.lines) % LEAST:
        return None
    if not recent:
        return None
    now, median_seconds = history.lines[-1]["step"], median(recent)
    minutes = _compute_spent_minutes(history, plan) + (plan.max_steps - now) * median_seconds / 60
    if minutes <= settings.planned_minutes:
        return None
    price = settings.usd_an_hour
    money = f", {minutes / 60 * price:.2f} USD" if price else ""
    return Finding(
        minutes,
        settings.planned_minutes,
        f"at {median_seconds:.3g} s a step this job needs {minutes:.4g} minutes of "
        f"training{money}, and "
        f"{settings.planned_minutes:.4g} minutes are planned",
        "raise max_runtime_minutes if that is intended, lower max_steps, or look at where a step's "
        "time goes",
    )


def _compute_spent_minutes(history: History, plan: Plan) -> float:
    """Return the minutes of training that this process's lines cover."""
    seconds, before = 0.0, float(plan.start_step)
    for line in history.lines:
        if line["step"] > plan.start_step:
            seconds += (line["step"] - before) * line.get("step_seconds", 0.0)
            before = line["step"]
    return seconds / 60


RULE = Rule("At its pace the training ends later than planned.", check, CostBeyondPlan)
