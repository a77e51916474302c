"""Files that outlive the code that wrote them, and which commit still reads an older form of each.

Today's forms are declared where they are read; here are those that this version no longer reads. A
reader that finds one says ``older(…)``, so that nobody has to search for the code.
"""

from typing import Any

READERS: dict[str, dict[Any, str]] = {
    "manifest": {1: "459d22b", 2: "d58c816", 3: "e5a58ce"},
    "checkpoint": {"state.pt": "b50c5a7", "without lineage": "e5a58ce"},
    "provenance.json": {1: "e5a58ce"},
}
"""Kind of file → its older form → a commit that reads it."""


def older(kind: str, found: Any) -> str:
    """Which commit reads the form ``found``, and how to get it; for the middle of a message."""
    commit = READERS[kind].get(found) if isinstance(found, int | str) else None
    if commit is None:
        return "which no older version wrote: it is of a newer one, or damaged"
    return f"which commit {commit} reads (git worktree add ../{commit} {commit})"
