"""Convert a pipeline script from SDK v2 to v3, shown as a diff, and prove it equal.

trainyard migrate my_pipeline.py [--write] [--prove --old-python PYTHON [--put s3://B/KEY=FILE]]

What has no counterpart in v3 is listed by line, and so is each call of the new code that does not
fit the signatures of the SDK v3 under --new-python. With --prove, the old script runs under a
Python that has SDK v2 and the new one under --new-python, and `trainyard equal` compares their
definitions. Exit status 0: everything is converted and fits (and is proven equal); 2: lines remain,
do not fit, were not compared, or the definitions differ; 1: an error.
"""

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.equal import DIFFERENT
from trainyard.commands.equal import format_answer as lines_of_answer
from trainyard.commands.run import parse_put
from trainyard.common import atomic_file
from trainyard.common.errors import DefinitionError, RecipeError
from trainyard.equality.static_comparison import EqualityResult
from trainyard.migration.rewriting import Migration, migrate_script
from trainyard.migration.signatures import (
    ComparisonSettings,
    SignatureCheck,
    check_signatures,
    prove_equality,
)
from trainyard.terminal import Need, needs
from trainyard.validate.all_checks import JsonOption


@needs(Need(("old_python",), lambda values: bool(values["prove_"])))
def main(
    script: Annotated[Path, typer.Argument(help="A Python script that makes a pipeline.")],
    write: Annotated[bool, typer.Option("--write", help="Write the new code to SCRIPT.")] = False,
    prove_: Annotated[
        bool, typer.Option("--prove", help="Run both scripts, and compare their definitions.")
    ] = False,
    old_python: Annotated[
        Path | None, typer.Option(help="A Python with sagemaker<3, for the old script.")
    ] = None,
    new_python: Annotated[
        Path, typer.Option(help="A Python with sagemaker>=3; this one by default.")
    ] = Path(sys.executable),
    put: Annotated[
        list[str] | None,
        typer.Option(help="s3://BUCKET/KEY=FILE: a file that both scripts can read from S3."),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Compare as written; execute no definition.")
    ] = False,
    twice: Annotated[
        bool,
        typer.Option(
            "--twice", help="Run the old one twice; ignore what differs between the runs."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Convert a pipeline script to SDK v3, list what remains, and prove that both do the same."""
    try:
        old = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise RecipeError(f"{script}: cannot be read: {failure}") from None
    try:
        migration, answer = migrate_script(old), None
    except DefinitionError as wrong:
        raise DefinitionError(f"{script}: {wrong}") from None
    calls = check_signatures(migration.code, new_python)
    if prove_ and old_python is not None:
        puts = [parse_put(text) for text in put or ()]
        files = {
            f"s3://{upload.bucket}/{key}": path
            for upload in puts
            for path, key in upload.iter_files()
        }
        sides = ComparisonSettings(
            script=script,
            old_python=old_python,
            new_python=new_python,
            puts=files,
            static=static,
            twice=twice,
        )
        answer = prove_equality(old, migration.code, sides)
    if as_json:
        print(json.dumps(_build_json(migration, calls, answer), indent=1))
    else:
        print("\n".join(_format_migration(script, old, migration, calls, answer)))
    if write:
        atomic_file.write_file(script, migration.code.encode())
    unproven = migration.remaining or calls.unfit or (calls.calls and not calls.sdk)
    raise typer.Exit(DIFFERENT if unproven or (answer and answer.cause) else 0)


def _build_json(migration: Migration, calls: SignatureCheck, answer: EqualityResult | None) -> dict:
    """Return the result as the JSON object that --json prints."""
    rows = {
        "remaining": migration.remaining,
        "without_loss": migration.without_loss,
        "unfit": calls.unfit,
    }
    sections = {
        key: [{"line": r.line, "what": r.construct, "why": r.reason} for r in items]
        for key, items in rows.items()
    }
    return {
        "code": migration.code,
        "sdk": calls.sdk,
        **sections,
        "proof": answer.as_json() if answer else None,
    }


def _format_migration(
    script: Path,
    old: str,
    migration: Migration,
    calls: SignatureCheck,
    answer: EqualityResult | None,
) -> Iterator[str]:
    """Yield the result as human-readable lines: the diff, the remarks and the proof."""
    names = f"a/{script.name}", f"b/{script.name}"
    yield from difflib.unified_diff(
        old.splitlines(), migration.code.splitlines(), *names, lineterm=""
    )
    for title, items in (
        ("left out, which changes nothing", migration.without_loss),
        ("remains", migration.remaining),
        (f"does not fit {calls.sdk}, in the new code", calls.unfit),
    ):
        for remark in items:
            code_text = " ".join(remark.construct.split())
            yield f"{title}: line {remark.line}: {code_text}: {remark.reason}"
    count = len(migration.remaining)
    result = f"{count} remain" if count else "everything is converted"
    if calls.unfit:
        result += f", {len(calls.unfit)} of {calls.calls} imports and calls do not fit"
    elif calls.sdk:
        result += f"; its {calls.calls} imports and calls fit {calls.sdk}"
    elif calls.calls:
        result += "; not compared with SDK v3: none is installed; name a Python with --new-python"
    yield result
    if answer:
        yield from lines_of_answer(answer)
        yield "both scripts ran with the same time and uuid4, so names made from them are equal"
