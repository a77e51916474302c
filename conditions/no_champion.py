"""Words in place of the champion's ARN. Apart: they travel with gate and evaluation."""

NONE = "none"
"""The model package group has no Approved package."""

UNRESOLVED_ARN = "unresolved"
"""Nobody has looked for a champion: the run was started without naming one."""
