"""Fail step: end the execution."""

from trainyard.emulator.sagemaker.pipelines.steps.runner import Attempt, Runner, StepFailed, runs


@runs("Fail")
class FailRunner(Runner):
    """Fail with the step's message."""

    def run(self, attempt: Attempt) -> None:
        message = str(attempt.arguments.get("ErrorMessage", ""))
        attempt.note({"ErrorMessage": message})
        raise StepFailed(message)
