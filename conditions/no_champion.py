"""Words used instead of the champion's ARN.

This is a separate module because the gate's and evaluation's jobs include it.
"""

NONE = "none"
"""The model package group has no Approved package."""

UNRESOLVED_ARN = "unresolved"
"""No champion was looked up, because the execution was started without naming one."""
