"""The statuses in which executions, steps and jobs end, and the triggers that wait for them."""

END_STATUSES = ("Succeeded", "Failed", "Stopped", "CompletedWithFailures")
"""Statuses of an execution that has ended; the last one, when every failure was handled."""

JOB_ENDED = ("Completed", "Failed", "Stopped")
"""Statuses of a job that has ended."""

TRIGGERS = {
    "Completed": ("Succeeded",),
    "Failed": ("Failed",),
    "Stopped": ("Stopped",),
    "Any": ("Succeeded", "Failed", "Stopped"),
}
"""``DependsOn: {Step, Trigger}`` → the step statuses that fulfil it (SDK 3.27:
TriggerCondition)."""


EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters that Hyperband takes as MaxResource (HyperbandStrategyConfig)."""
