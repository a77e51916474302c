"""Answer a waiting callback step, e.g. an approval, or list those that wait.

trainyard callback                                   list the waiting steps
trainyard callback TOKEN --succeed [--output k=v]    it succeeded, with these output parameters
trainyard callback TOKEN --fail REASON               it failed
"""

from typing import Annotated

import typer

from trainyard.common.errors import RecipeError
from trainyard.local_state import serve_local_state
from trainyard.runs import execution
from trainyard.terminal import Need, console, needs, parse_pairs


@needs(
    Need(("token",), lambda values: bool(values["succeed"] or values["fail"] or values["output"])),
    Need(("succeed", "fail"), lambda values: values["token"] is not None),
)
def main(
    token: Annotated[
        str | None, typer.Argument(help="The step's token; without it, list the waiting steps.")
    ] = None,
    succeed: Annotated[bool, typer.Option("--succeed", help="The step succeeded.")] = False,
    fail: Annotated[
        str | None, typer.Option("--fail", metavar="REASON", help="The step failed.")
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An output parameter, with --succeed."),
    ] = None,
) -> None:
    """Answer a waiting callback step, e.g. an approval, or list those that wait."""
    if token is None:
        return print_waiting_callbacks()
    if fail is not None and output:
        raise RecipeError("--output: a step that failed has no output parameters")
    arn = (
        execution.report_success(token, parse_pairs("--output", output or []))
        if fail is None
        else execution.report_failure(token, fail)
    )
    console.print(f"answered; {arn} continues", highlight=False)


@serve_local_state()
def print_waiting_callbacks() -> None:
    """Print the callback steps that wait for an answer."""
    callbacks = list(execution.iter_waiting_callbacks())
    for callback in callbacks:
        since = f" since {callback.since:%Y-%m-%d %H:%M}" if callback.since else ""
        stopping = "; its execution waits for the answer to stop" if callback.stopping else ""
        line = f"{callback.token}  {callback.step}{since}  {callback.execution}{stopping}"
        console.print(line, highlight=False, markup=False)
    if not callbacks:
        console.print("no callback step is waiting")
