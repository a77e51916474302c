"""The causes of a failed run on the summary page of the GitHub Actions job that asked for them.

Source: GitHub Docs, Workflow commands, Adding a job summary: what a step appends to the file that
``GITHUB_STEP_SUMMARY`` names is shown as Markdown.
"""

import os
import re
from collections.abc import Iterable

from trainyard.common.errors import TrainyardError
from trainyard.runs.why.diagnosis import Cause

VARIABLE = "GITHUB_STEP_SUMMARY"


def add(causes: Iterable[Cause]) -> None:
    """Append the causes to the job's summary; nothing outside GitHub Actions, or without any.

    Raises:
        TrainyardError: the file cannot be written.
    """
    path, text = os.environ.get(VARIABLE), "".join(map(_markdown, causes))
    if not path or not text:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise TrainyardError(f"{VARIABLE}={path}: {error.strerror}") from None


def _markdown(cause: Cause) -> str:
    """A heading, then text: within its fence nothing that a log says is Markdown."""
    likely = "likely: " if cause.certainty == "likely" else ""
    rows = [f"{likely}{cause.sentence}", *(f"  {line}" for line in cause.lines)]
    rows += [f"fix: {cause.fix}"] if cause.fix else []
    text = "\n".join(_plain(row) for row in rows)
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    step = re.sub(r"[^\w .-]", "", cause.step)
    return f"### {step or 'It'} failed\n\n{fence}text\n{text}\n{fence}\n\n"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
