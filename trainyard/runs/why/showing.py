"""How a cause looks in a terminal."""

from rich.text import Text

from trainyard.runs.why.diagnosis import Cause
from trainyard.terminal import console

STYLES = {"certain": "bold red", "likely": "bold yellow", "unknown": "bold"}


def print_cause(cause: Cause) -> None:
    """The sentence first, then the lines that show it, then what to do."""
    mark = {"certain": "", "likely": "likely: ", "unknown": ""}[cause.certainty]
    what = f"{cause.step} failed: " if cause.step else ""
    if cause.source and (cause.host or cause.rank is not None):
        what += f"{_who(cause)}: "
    console.print(Text.assemble((f"{what}{mark}", STYLES[cause.certainty]), cause.sentence))
    if cause.lines:
        console.print(Text(f"  {_who(cause) or 'it says'}:", style="dim"))
    for line in cause.lines:
        console.print(Text(f"    {_safe(line)}", style="dim"))
    if cause.fix:
        console.print(Text.assemble(("  fix: ", "bold"), cause.fix))
    if cause.source:
        console.print(Text(f"  known from: {cause.source}", style="dim"))


def _who(cause: Cause) -> str:
    rank = "" if cause.rank is None else f"rank {cause.rank}"
    return " on ".join(filter(None, (rank, cause.host)))


def _safe(line: str) -> str:
    """Without what a terminal would take for a command."""
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)
