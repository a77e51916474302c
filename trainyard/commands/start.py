"""Start a pipeline again from one of its steps, and list the steps that are reused.

trainyard start --from STEP [--execution ARN] [--pipeline NAME] [--parameter NAME=VALUE] [--wait]

The step and all steps that depend on it run, with the parameters of the earlier execution except
those given. Without --execution, the newest execution is reused: that of --pipeline, or of any
pipeline.
"""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from trainyard.definition_source import RegionOption
from trainyard.runs import selective_rerun
from trainyard.runs.live_watch import watch_execution
from trainyard.runs.selective_rerun import RerunPlan
from trainyard.terminal import Need, console, needs, parse_pairs

WaitOption = Annotated[
    bool, typer.Option("--wait", help="Watch the run; exit 0 only when it Succeeded.")
]
StopOption = Annotated[
    bool, typer.Option("--stop-on-interrupt", help="With --wait: Ctrl-C also stops the run.")
]


def start_again(parameters: Mapping[str, str], rerun: RerunPlan | None, region: str | None) -> str:
    """Start a pipeline again from one of its steps, print what is reused, and return the new
    execution's ARN.
    """
    assert rerun is not None  # noqa: S101 (the verb needs a step)
    for line in rerun.iter_explanations(parameters):
        console.print(line, highlight=False, markup=False)
    arn = selective_rerun.start_rerun(rerun, parameters, region)
    console.print(f"started {arn}", highlight=False)
    return arn


FROM_STEP = Need(("step",), lambda values: values["execution"] is not None)


@needs(Need(("step",)))
def main(
    step: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="STEP", help="Run this step and what depends on it; reuse the rest."
        ),
    ] = None,
    execution: Annotated[
        str | None, typer.Option(metavar="ARN", help="The execution to reuse; else the newest.")
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="The pipeline; its newest execution.")
    ] = None,
    region: RegionOption = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A pipeline parameter for this run."),
    ] = None,
    wait: WaitOption = False,
    stop_on_interrupt: StopOption = False,
    *,
    start: Callable[[Mapping[str, str], RerunPlan | None, str | None], str] = start_again,
    follow: Callable[..., int] = lambda arn, parameters, **options: watch_execution(arn, **options),
) -> None:
    """Start a pipeline, or start it again from one of its steps and reuse the results it needs.

    An application may pass its own ``start``, which may also start a whole pipeline, and its own
    ``follow``, which watches the execution and does what comes after its end.
    """
    parameters = parse_pairs("--parameter", parameter or [])
    rerun = selective_rerun.plan_rerun(step, execution, pipeline, region) if step else None
    arn = start(parameters, rerun, region)
    if wait:
        status = follow(arn, parameters, region=region, stop_on_interrupt=stop_on_interrupt)
        raise typer.Exit(status)
