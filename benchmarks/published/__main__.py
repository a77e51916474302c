"""Ask an emulator what AWS's answers are known for.

python -m benchmarks.published [--only FILE,FILE]

The rows are in ``tests/published``, a file for each kind of source; ``rows.py`` says what one says.
Calls go over HTTP, jobs and functions run. A row agrees, differs, or cannot be asked, where the
emulator refuses by name. Exit status 1 when one differs that its row does not argue.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import JsonFile, keep, show_figures
from benchmarks.published.asking import Asker
from benchmarks.published.rows import FOLDER, File, files
from trainyard.emulator.server import serve

OUTCOMES = ("agree", "differ", "argued", "cannot be asked")


def main(
    only: Annotated[str, typer.Option(help="Files, by name, with commas.")] = "",
    row: Annotated[int, typer.Option(help="Number of the row, alone.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Print what differs, and the outcomes of each kind of source; exit 1 when a row differs."""
    names = only.split(",") if only else None
    found = asked([file for file in files(FOLDER) if not names or file.name in names], row)
    for each in found:
        if each["outcome"] != "agree":
            print(f"{each['outcome']}: {each['row']}: {each['why']} [{each['source']}]")
    show_figures(("kind of source", "rows", *OUTCOMES), table(found), width=120)
    print(f"agree / (agree + differ): {share(found):.1%} of {len(found)} rows")
    keep(json_file, found)
    raise typer.Exit(1 if any(each["outcome"] == "differ" for each in found) else 0)


def asked(chosen: Sequence[File], row: int = 0) -> list[dict[str, str]]:
    """Ask a fresh emulator for every row of the files."""
    found = []
    with tempfile.TemporaryDirectory(prefix="published-") as state, serve(Path(state)) as endpoint:
        asker = Asker(endpoint)
        for file in chosen:
            found += asker.judged(file, file.rows[row - 1 : row] if row else file.rows)
    return found


def share(found: Sequence[dict[str, str]]) -> float:
    """Agreeing rows among those that could be asked; argued ones count as differing."""
    counts = Counter(each["outcome"] for each in found)
    judged = sum(counts[outcome] for outcome in ("agree", "differ", "argued"))
    return counts["agree"] / judged if judged else 0.0


def table(found: Sequence[dict[str, str]]) -> Iterator[tuple[object, ...]]:
    """Iterate over each kind with its counts, and all together."""
    for kind in (*dict.fromkeys(each["kind"] for each in found), "all"):
        counts = Counter(each["outcome"] for each in found if kind in ("all", each["kind"]))
        yield (kind, counts.total(), *(counts[outcome] or "" for outcome in OUTCOMES))


if __name__ == "__main__":
    typer.run(main)
