"""A checkpoint could not be written, so an interruption costs more than it should.

The next checkpoint ends the training with the reason; this rule reports at once, which may be hours
earlier.
"""

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings


def check(history: History, settings: RuleSettings, plan: Plan) -> Finding | None:
    """Return a finding if a save failed since the last complete checkpoint."""
    newest = history.lines[-1]
    failures = newest.get("checkpoint_failures", 0)
    if failures < 1:
        return None
    return Finding(
        failures,
        1,
        f"a checkpoint could not be written, and {newest.get('unsaved_steps', 0):.0f} steps are "
        "not in a checkpoint; the next one that fails ends the training",
        "look at the free space of the volume (volume_gb, keep_checkpoints) and at the file "
        "system of /opt/ml/checkpoints; the log shows the error itself where the training ends",
    )


RULE = Rule("A checkpoint could not be written.", check)
