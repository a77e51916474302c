"""Which code a definition was built from."""

import hashlib
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


def changes_sha256(checkout: Path) -> str | None:
    """SHA-256 of what differs from the commit: git's diff, and the files that it does not follow.

    None when nothing differs, or there is no git to ask.
    """
    if not _git(checkout, "status", "--porcelain"):
        return None
    diff = _git(checkout, "diff", "--binary", "HEAD") or ""
    digest = hashlib.sha256(diff.encode(errors="surrogateescape"))
    untracked = _git(checkout, "ls-files", "-z", "--others", "--exclude-standard") or ""
    for name in filter(None, untracked.split("\0")):
        content = (checkout / name).read_bytes() if (checkout / name).is_file() else b""
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError:  # no git on this machine
        return None
    return done.stdout.strip() if done.returncode == 0 else None
