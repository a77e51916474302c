"""Looks at the curves of a tuning job's training jobs, and says which of them are to be stopped."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.emulator.logs import LogStore
from trainyard.emulator.tuning.curves import TWICE, Emissions
from trainyard.emulator.tuning.stopping import Median, Rule


class Watch:
    """One for each tuning job; it can be made anew at any time, for the logs hold all."""

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._curves: dict[str, Emissions] = {}
        self._whole: set[str] = set()
        """Jobs of which everything has been read."""
        self._judged: dict[str, int] = {}
        """Job → how many of its values the rule has seen."""
        self._told: set[str] = set()

    def read(self, job: str, nodes: int, metric: Mapping[str, Any], ended: bool) -> None:
        """Reads what a job has printed since the last call; ``ended``: it prints no more."""
        if job in self._whole:
            return
        if job not in self._curves:
            self._curves[job] = Emissions(self._logs, job, nodes, metric)
        self._curves[job].read()
        self._whole |= {job} if ended else set()

    def verdict(self, job: str, rule: Rule, order: Sequence[str]) -> tuple[list[str], str | None]:
        """What to say in the job's log, and why it is stopped; None when it goes on.

        ``order``: the jobs that are compared, in the order of their start, this one among them.
        """
        curve = self._curves[job]
        earlier = order[: order.index(job)]
        others = earlier if isinstance(rule, Median) else [name for name in order if name != job]
        compared = [self._curves[name].values for name in others]
        seen, count = self._judged.get(job, 0), len(curve.values)
        self._judged[job] = count
        reasons = (rule.verdict(curve.values, at, compared) for at in range(seen + 1, count + 1))
        said = (
            [TWICE.format(line=curve.repeated)] if curve.repeated and job not in self._told else []
        )
        self._told |= {job} if said else set()
        return said, next((why for why in reasons if why), None)
