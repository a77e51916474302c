"""The statuses in which executions, steps and jobs end, and what waits for them."""

ENDED = ("Succeeded", "Failed", "Stopped", "CompletedWithFailures")
"""Statuses of an execution that runs no more; the last one, when every failure was handled."""

JOB_ENDED = ("Completed", "Failed", "Stopped")
"""Statuses of a job that runs no more."""

TRIGGERS = {
    "Completed": ("Succeeded",),
    "Failed": ("Failed",),
    "Stopped": ("Stopped",),
    "Any": ("Succeeded", "Failed", "Stopped"),
}
"""``DependsOn: {Step, Trigger}`` → the step statuses that fulfil it (SDK 3.27:
TriggerCondition)."""


EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters that Hyperband takes for MaxResource (HyperbandStrategyConfig)."""
