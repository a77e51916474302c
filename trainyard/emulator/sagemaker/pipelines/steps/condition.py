"""Condition step: decide which of its branches runs."""

from trainyard.emulator.sagemaker.pipelines.steps.runner import Attempt, Runner, runs
from trainyard.language.evaluation import are_conditions_met, check_condition
from trainyard.language.expressions import ExpressionError


@runs("Condition")
class ConditionRunner(Runner):
    """Evaluate the conditions in order. Values that do not affect the outcome are not read."""

    resolves = True

    @staticmethod
    def check(arguments: dict) -> None:
        conditions = arguments.get("Conditions") or []
        if not isinstance(conditions, list):
            raise ExpressionError(f"Conditions is {conditions!r}: expected a list of conditions")
        for condition in conditions:
            check_condition(condition)

    def run(self, attempt: Attempt) -> None:
        outcome = are_conditions_met(attempt.arguments.get("Conditions") or [], attempt.scope)
        attempt.note({"Outcome": str(outcome)})

    def describe(self, metadata: dict) -> dict:
        """Return the outcome as a Boolean, so that Std:Join writes ``false``, where Metadata has
        ``False``.
        """
        return {"Outcome": metadata["Outcome"] == "True"}
