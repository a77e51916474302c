"""Read what happened in an execution of any pipeline from the service, and show it.

In a notebook ``from trainyard import runs`` gives pandas frames: ``runs.frame`` of executions,
``runs.steps``, ``runs.metrics`` and ``runs.scores`` of their content (docs/console.md).
"""

from typing import Any

FRAMES = ("frame", "metrics", "scores", "steps")


def __getattr__(name: str) -> Any:
    """Load the frames' module on first use: commands that need no frames start without it."""
    if name not in FRAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainyard.runs import data_frames

    return getattr(data_frames, name)


def __dir__() -> list[str]:
    """Return the names that a notebook offers after ``runs.`` is typed."""
    return sorted({*globals(), *FRAMES})
