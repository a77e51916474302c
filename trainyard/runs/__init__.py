"""What happened in an execution of any pipeline, read from the service and shown.

In a notebook ``from trainyard import runs`` gives pandas frames: ``runs.frame`` of executions,
``runs.steps``, ``runs.metrics`` and ``runs.scores`` of what is in them (docs/console.md).
"""

from typing import Any

FRAMES = ("frame", "metrics", "scores", "steps")


def __getattr__(name: str) -> Any:
    """Load what makes frames when it is asked for: commands that need none start without it."""
    if name not in FRAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainyard.runs import data_frames

    return getattr(data_frames, name)


def __dir__() -> list[str]:
    """What a notebook offers after ``runs.``"""
    return sorted({*globals(), *FRAMES})
