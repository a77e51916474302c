"""Display of causes in a terminal, and on the summary page of a job of GitHub Actions.

Source: GitHub Docs, Workflow commands, Adding a job summary: text that a step appends to the file
named in ``GITHUB_STEP_SUMMARY`` is shown as Markdown.
"""

import os
import re
from collections.abc import Iterable

from rich.text import Text

from trainyard.common.errors import TrainyardError
from trainyard.runs.why.diagnosis import Cause
from trainyard.terminal import console

VARIABLE = "GITHUB_STEP_SUMMARY"
STYLES = {"certain": "bold red", "likely": "bold yellow", "unknown": "bold"}


def print_cause(cause: Cause) -> None:
    """Print the sentence first, then the lines that show it, then what to do."""
    mark = {"certain": "", "likely": "likely: ", "unknown": ""}[cause.certainty]
    prefix = f"{cause.step} failed: " if cause.step else ""
    if cause.source and (cause.host or cause.rank is not None):
        prefix += f"{_name_process(cause)}: "
    console.print(Text.assemble((f"{prefix}{mark}", STYLES[cause.certainty]), cause.sentence))
    if cause.lines:
        heading = _name_process(cause) or ("because" if cause.name == "condition" else "it says")
        console.print(Text(f"  {heading}:", style="dim"))
    for line in cause.lines:
        # A terminal would take control characters of a log for commands.
        safe_line = "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)
        console.print(Text(f"    {safe_line}", style="dim"))
    if cause.fix:
        console.print(Text.assemble(("  fix: ", "bold"), cause.fix))
    if cause.source:
        console.print(Text(f"  known from: {cause.source}", style="dim"))


def _name_process(cause: Cause) -> str:
    rank = "" if cause.rank is None else f"rank {cause.rank}"
    return " on ".join(filter(None, (rank, cause.host)))


def add_to_summary(causes: Iterable[Cause]) -> None:
    """Append the causes to the job's summary; no effect without causes or GitHub Actions.

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
    """Return a heading, then text."""
    likely = "likely: " if cause.certainty == "likely" else ""
    rows = [f"{likely}{cause.sentence}", *(f"  {line}" for line in cause.lines)]
    rows += [f"fix: {cause.fix}"] if cause.fix else []
    mark = "\N{REPLACEMENT CHARACTER}"
    text = "\n".join(
        "".join(c if c.isprintable() or c == "\t" else mark for c in row) for row in rows
    )
    # Longer than any run of backticks in the text: no text of a log may end it and be Markdown.
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    step = re.sub(r"[^\w .-]", "", cause.step)
    return f"### {step or 'It'} failed\n\n{fence}text\n{text}\n{fence}\n\n"
