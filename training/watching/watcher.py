"""Run the watch rules on each metric line; a rule that reported is quiet until its problem ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from training.watching.metric_line import format_metric_line
from training.watching.rules import RULES
from training.watching.rules.cost_beyond_plan import CostBeyondPlan
from training.watching.watch_rule import Action, Finding, History, Line, Plan, RuleSettings
from trainyard.common.errors import TrainingError


class _Rules(BaseModel):
    """Rules that watch the training, with their settings; by default each is on, and warns."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def get_settings(self, name: str) -> RuleSettings:
        """Return the settings of a rule."""
        return getattr(self, name)


_FIELDS: dict[str, Any] = {
    name: (rule.settings, Field(default_factory=rule.settings, description=rule.says))
    for name, rule in RULES.items()
}

if TYPE_CHECKING:

    class Watching(_Rules):  # at run time it also has the fields of the other rules
        cost_beyond_plan: CostBeyondPlan = CostBeyondPlan()

else:
    Watching = create_model("Watching", __base__=_Rules, __doc__=_Rules.__doc__, **_FIELDS)
    """Settings of all rules, one field per rule."""


def parse_watching(text: str) -> Watching:
    """Parse the job's setting ``watch``, which is JSON; return the defaults if it is empty.

    Raises:
        TrainingError: a field is unknown or wrong; the message names it.
    """
    try:
        return Watching.model_validate_json(text or "{}")
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise TrainingError(f"watch: {problems}; see the recipe's train.watch") from None


QUIET_CHECKS = 20
"""Number of checks of a rule without a finding after which it may report again."""

REPLAYED_LINES = 200
"""Number of lines of a resumed training from which earlier findings are reconstructed: twice the
longest window of a rule.
"""

TIMED_SUFFIXES = ("_seconds", "data_stall", "straggler_ratio")
"""Suffixes of metrics that are unusual in a process's first line, because it starts threads,
compiles kernels and fills its loader then.
"""


@dataclass(frozen=True, slots=True)
class Event:
    """A report of a rule."""

    rule: str
    step: int
    action: Action
    finding: Finding

    @property
    def metrics(self) -> dict[str, float]:
        """The event as a line of the history: ``{"step": 120, "watch.loss_not_falling": 0.07}``."""
        return {"step": self.step, f"watch.{self.rule}": float(self.finding.value)}

    @property
    def line(self) -> str:
        """The event as a log line: a metric line, followed by its meaning and a fix."""
        text = format_metric_line({**self.metrics, "threshold": float(self.finding.threshold)})
        return f"{text} action={self.action}: {self.finding.says}; {self.finding.fix}"

    @property
    def reason(self) -> str:
        """Reason for stopping the training: the rule, and its finding."""
        return f"watch rule {self.rule}: {self.finding.says}; {self.finding.fix}"


@dataclass(slots=True)
class Watcher:
    """Examine each metric line as it arrives, and return the rules' events.

    Args:
        settings: the recipe's ``train.watch``.
    """

    settings: Any
    plan: Plan = field(default_factory=Plan)
    history: History = field(default_factory=History)
    _quiet_runs: dict[str, int] = field(default_factory=dict)
    """Mapping of rule to the number of checks without a finding since its last report."""
    _cold: bool = True

    def begin(self, lines: Sequence[Line]) -> None:
        """Load the lines of a resumed training; their findings are not reported again."""
        self.history.lines += [line for line in lines[:-REPLAYED_LINES] if "loss" in line]
        for line in lines[-REPLAYED_LINES:]:
            self._find_new_findings(line)
        self._cold = True

    def add(self, line: Line) -> list[Event]:
        """Add a line; return the events of rules that report now."""
        if self._cold and "loss" in line:
            line = {name: v for name, v in line.items() if not name.endswith(TIMED_SUFFIXES)}
            self._cold = False
        findings = self._find_new_findings(line)
        step = int(line["step"])
        return [
            Event(name, step, self.settings.get_settings(name).action, finding)
            for name, finding in findings
        ]

    def _find_new_findings(self, line: Line) -> list[tuple[str, Finding]]:
        """Store a training line; return the findings to report: those of rules that were quiet."""
        if "loss" not in line:
            return []
        self.history.lines.append(line)
        new: list[tuple[str, Finding]] = []
        for name, rule in RULES.items():
            settings = self.settings.get_settings(name)
            if settings.action == "off":
                continue
            if (finding := rule.check(self.history, settings, self.plan)) is None:
                # After QUIET_CHECKS checks without a finding the rule may report again.
                if name in self._quiet_runs:
                    self._quiet_runs[name] += 1
                    if self._quiet_runs[name] >= QUIET_CHECKS:
                        del self._quiet_runs[name]
                continue
            if name not in self._quiet_runs:
                new.append((name, finding))
            self._quiet_runs[name] = 0
        return new
