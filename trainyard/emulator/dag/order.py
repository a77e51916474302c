"""The order of an execution's steps: which may start now, and how the execution has ended."""

import sys
from collections.abc import Collection

from trainyard.emulator.dag.definition import Definition, Step
from trainyard.language.statuses import TRIGGERS


class Order:
    """Reads the execution's record as it is at each call; the caller holds its lock."""

    def __init__(self, definition: Definition, record: dict) -> None:
        self._definition, self._record = definition, record
        self.children: dict[str, Step] = {}
        """The steps that the loops under way became."""

    def ready(self, running: Collection[str]) -> list[Step]:
        """Steps that may start now beside those, as many as MaxParallelExecutionSteps allows."""
        limit = self._record["answer"].get("ParallelismConfiguration", {})
        free = limit.get("MaxParallelExecutionSteps", sys.maxsize)
        free -= len([name for name in running if not self._is_loop(name)])
        found: list[Step] = []
        for step in self._steps():
            if not self.may_start(step):
                continue
            if self._is_loop(step.name):
                found.append(step)
            elif free > 0 and self._has_place(step, [*running, *(other.name for other in found)]):
                free -= 1
                found.append(step)
        return found

    def may_start(self, step: Step) -> bool:
        """Whether all that it waits for has ended as it must, and nothing failed that stops it."""
        top = step.loop or step.name
        if step.name in self._began or top not in self._record.get("selected", [top]):
            return False
        waits = step.depends_on.items()
        if not all(self._status(name) in TRIGGERS[trigger] for name, trigger in waits):
            return False
        if step.branch and not self._taken(*step.branch):
            return False
        handles = any(
            trigger != "Completed" and self._status(name) != "Succeeded" for name, trigger in waits
        )
        return handles or not self._failed(step.loop)

    def end(self) -> tuple[str, str | None]:
        """The status of an execution whose steps have all ended, and the reason of a failure."""
        failed = self._failed()
        handled = {
            name
            for step in self._definition.steps.values()
            if step.name in self._began
            for name, trigger in step.depends_on.items()
            if trigger != "Completed"
        }
        if failed and set(failed) <= handled:
            return "CompletedWithFailures", None
        if failed:
            causes = [f"{name}: {self._began[name].get('FailureReason', '')}" for name in failed]
            return "Failed", f"Step failure: One or multiple steps failed. {'; '.join(causes)}"
        stopped = "Stopped" in [record["StepStatus"] for record in self._began.values()]
        return ("Stopped" if stopped else "Succeeded"), None

    @property
    def _began(self) -> dict[str, dict]:
        return self._record["steps"]

    def _steps(self) -> list[Step]:
        """Those that the definition has outside of loops, and what the loops became."""
        outside = (step for step in self._definition.steps.values() if not step.loop)
        return [*outside, *self.children.values()]

    def _is_loop(self, name: str) -> bool:
        """A loop itself takes no place among the steps that run in parallel."""
        step = self._definition.steps.get(name)
        return step is not None and step.type == "ForEach"

    def _has_place(self, step: Step, running: list[str]) -> bool:
        """Whether the loop that it is of, if any, may run one more."""
        if not step.loop:
            return True
        beside = [self.children[name] for name in running if name in self.children]
        most = self._definition.steps[step.loop].arguments["MaxConcurrency"]
        return len([other for other in beside if other.loop == step.loop]) < most

    def _status(self, name: str) -> str | None:
        return self._began.get(name, {}).get("StepStatus")

    def _taken(self, condition: str, outcome: bool) -> bool:
        metadata = self._began.get(condition, {}).get("Metadata", {})
        return metadata.get("Condition", {}).get("Outcome") == str(outcome)

    def _failed(self, loop: str | None = None) -> list[str]:
        """Steps that failed: of that loop, else those that are of none."""
        return [
            name
            for name, record in self._began.items()
            if record["StepStatus"] == "Failed"
            and record.get("IterationContext", {}).get("ParentStepName") == loop
        ]
