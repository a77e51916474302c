"""Say whether two definitions do the same when executed and where they differ first.

trainyard equal before.json after.json [--put s3://BUCKET/KEY=FILE ...] [--parameter NAME=VALUE ...]

The answer is: equal, equal but for what is listed, or different. Each side may also be the name of
a deployed pipeline. If the definitions may be equal, both are executed, each on an emulator of its
own. Exit status 0: equal, or equal but for what is listed; 2: different; 1: an error.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.emulator import PythonOption
from trainyard.commands.run import parse_put
from trainyard.definition_source import RegionOption, find_deployed_pipeline, read_definition
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.equality.observed_run import Setting
from trainyard.equality.static_comparison import EqualityResult, decide_equality
from trainyard.terminal import parse_pairs
from trainyard.validate import refuse_errors
from trainyard.validate.all_checks import JsonOption

DIFFERENT = 2


def main(
    first: Annotated[str, typer.Argument(help="A definition's JSON file, or a pipeline's name.")],
    second: Annotated[str, typer.Argument(help="The other definition or pipeline.")],
    parameter: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for both executions.")
    ] = None,
    put: Annotated[
        list[str] | None, typer.Option(help="s3://BUCKET/KEY=FILE: what both find in S3.")
    ] = None,
    static: Annotated[bool, typer.Option("--static", help="Execute nothing.")] = False,
    twice: Annotated[
        bool,
        typer.Option(
            "--twice", help="Execute the first twice; ignore what differs between the two."
        ),
    ] = False,
    python: PythonOption = OWN_PYTHON,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether two definitions do the same, and where they differ; executes both."""
    bodies = [_load_definition_text(text, region) for text in (first, second)]
    for body, name in zip(bodies, (first, second), strict=True):
        refuse_errors(body, name)
    puts = [parse_put(text) for text in put or ()]
    files = {
        f"s3://{upload.bucket}/{key}": path for upload in puts for path, key in upload.iter_files()
    }
    setting = Setting(files, parse_pairs("--parameter", parameter or ()), python)
    first_body, other = map(json.loads, bodies)
    answer = decide_equality(first_body, other, setting, static=static, twice=twice)
    if as_json:
        print(json.dumps(answer.as_json(), indent=1))
    else:
        print("\n".join(format_answer(answer)))
    raise typer.Exit(DIFFERENT if answer.cause else 0)


def _load_definition_text(text: str, region: str | None) -> str:
    """Return the definition in a file, or of the deployed pipeline with this name."""
    if Path(text).exists() or text.endswith(".json"):
        return read_definition(Path(text))
    return find_deployed_pipeline(text, region).state.definition


def format_answer(answer: EqualityResult) -> list[str]:
    """Return the answer as human-readable lines."""
    if cause := answer.cause:
        # If the cause belongs to no step, its empty name would leave two spaces.
        texts = [f"different: {cause.step} {cause.what}".replace(":  ", ": ")]
        texts += [
            f"  first   {_format_value(cause.first)}",
            f"  second  {_format_value(cause.second)}",
        ]
        texts += [f"  {cause.note}"] if cause.note else []
    else:
        texts = [answer.verdict, *(f"  {line}" for line in answer.but_for)]
    return [*texts, answer.evidence]


def _format_value(value: str | None) -> str:
    return "(nothing)" if value is None else value
