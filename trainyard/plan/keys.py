"""The cache keys that a step had in executions that were."""

from typing import Any

from trainyard.language.caching import key_arguments
from trainyard.language.evaluation import evaluate
from trainyard.language.expressions import ExpressionError
from trainyard.plan.history import History, Run, StepRun, step_of
from trainyard.plan.resolving import Past


class Keys:
    """The keys of one step, in each execution of a history."""

    def __init__(self, name: str, history: History) -> None:
        self._name, self._history = name, history

    def earlier(self) -> list[tuple[Run, StepRun, dict[str, Any]]]:
        """(execution where the result was made, its record, its key), newest first."""
        found = []
        for run in self._history.runs:
            made = self._made(run)
            key = self.of(run) if made else None
            if made and key is not None:
                found.append((*made, key))
        return found

    def _made(self, run: Run) -> tuple[Run, StepRun] | None:
        """Where the result that the step had in ``run`` was made."""
        done = run.steps.get(self._name)
        if done is None or done.source is None:
            return (run, done) if done else None
        origin = self._history.run(done.source)
        made = origin.steps.get(self._name) if origin else None
        return (origin, made) if origin and made else None

    def of(self, run: Run) -> dict[str, Any] | None:
        """Its key in that execution; None where it had none, or nobody can tell it."""
        step = step_of(run, self._name)
        if step is None:
            return None
        try:
            arguments = evaluate(step.get("Arguments") or {}, Past(run, self._history))
        except ExpressionError:  # that execution had no value for it either
            return None
        return key_arguments(dict(step), arguments)
