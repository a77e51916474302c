"""The recipe's section ``budget``: what a run may cost."""

from typing import Literal

from pydantic import Field

from steps.config import Section


class Budget(Section):
    """Limit on a run's cost; beyond it, or if the cost is unknown, plan and upsert fail, and start
    fails without --over-budget REASON.
    """

    usd_per_run: float | None = Field(default=None, gt=0)
    """USD for one run, counting the steps that the cache does not answer; None for no budget."""

    bound: Literal["limit", "seen", "uncached"] = "limit"
    """Sum that is compared with the budget. limit: every step that the cache does not answer takes
    its max_runtime_minutes, on demand. uncached: every step does, cached or not. seen: a step takes
    as long as its longest earlier run on the same machines; without one, its forecast that holds in
    nine of ten cases; without either, its limit."""
