"""What stands in place of the champion's ARN. It travels with the gate and with the evaluation."""

NONE = "none"
"""The model package group has no Approved package."""

UNRESOLVED = "unresolved"
"""Nobody has looked for one: the run was started without being told."""
