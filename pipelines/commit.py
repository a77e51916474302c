"""Which code a definition was built from."""

import os
import subprocess
from pathlib import Path


def current_commit(checkout: Path) -> str:
    """CodeBuild's resolved commit, else git's; ``-dirty`` behind it when files were changed.

    ``unknown`` when the checkout is no git repository and CodeBuild says nothing: a definition
    can be built from an unpacked archive too.
    """
    if resolved := os.environ.get("CODEBUILD_RESOLVED_SOURCE_VERSION"):
        return resolved
    head = _git(checkout, "rev-parse", "HEAD")
    if head is None:
        return "unknown"
    return f"{head}-dirty" if _git(checkout, "status", "--porcelain") else head


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:  # no git on this machine
        return None
    return done.stdout.strip() if done.returncode == 0 else None
