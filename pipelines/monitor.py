"""Say whether a deployed model is still asked what it was trained for, and whether to retrain.

python -m pipelines.monitor --recipe recipes/prod.yaml [--until 2026-11-28]
python -m pipelines.monitor --recipe recipes/prod.yaml --start [--parameter InputUri=s3://…]

Each feature of the endpoint's captured requests, and its answers, are compared with the baseline,
and the answers whose truths are known with the evaluation, as the recipe's ``monitor`` says; the
files are Model Monitor's. Exit status: 0 without drift, 1 with drift. With --start a drift of
values, or answers that are worse, start the pipeline, within its budget; values that come empty are
a fault of what sends them, which no training mends.
"""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pipelines.monitoring.answer_quality import recorded
from pipelines.monitoring.drift import MISSING, QUALITY, VALUES
from pipelines.monitoring.monitor_files import write
from pipelines.monitoring.period import Period, look
from pipelines.recipe.aws_account import account_number, refuse_other_caller, resolve
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.read_recipe import load
from pipelines.serving.endpoint_requests import CAPTURED
from pipelines.start import start
from trainyard.aws_clients import client, service_errors
from trainyard.common.errors import RecipeError
from trainyard.terminal import console, pairs, run

SHOWN = 15
"""Rows of the table without drift."""


def advice(period: Period) -> tuple[bool, str]:
    """Return whether to retrain, and the sentence that says so."""
    empty, moved, worse = map(period.drifted, (MISSING, VALUES, QUALITY))
    if empty:
        names = ", ".join(empty)
        return False, f"do not retrain yet: first look why {names} are missing as often as they are"
    if moved or worse:
        why = [f"{', '.join(moved)} moved"] if moved else []
        why += [f"{', '.join(worse)} is worse than when it was evaluated"] if worse else []
        return True, f"retrain on newer records: {'; '.join(why)}"
    return False, "no drift: no need to retrain"


def show(period: Period) -> None:
    """Print the changes, those that are drift first."""
    table = Table("feature", "what", "PSI", "Holm's p", "", box=None, pad_edge=False)
    quiet = 0
    for change in period.changes:
        quiet += not change.drifted
        if quiet <= SHOWN:
            style = "bold red" if change.drifted else None
            index = "" if change.psi is None else f"{change.psi:.3f}"
            cells = (index, f"{change.chance:.2g}", "drift" if style else "")
            table.add_row(escape(change.feature), escape(change.told), *cells, style=style)
    console.print(table, highlight=False)
    for line in (f"… and {quiet - SHOWN} more without drift" if quiet > SHOWN else "",
                 *period.notes):  # fmt: skip
        if line:
            _say(line)


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False)


def main(
    recipe: RecipeOption,
    overridden: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    until: Annotated[
        datetime | None, typer.Option(help="End of the days looked at, in UTC; default: now.")
    ] = None,
    start_run: Annotated[
        bool, typer.Option("--start", help="Start the pipeline if it has to be trained again.")
    ] = False,
    parameter: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="A pipeline parameter for that run.")
    ] = NOT_GIVEN,
) -> None:
    """Compare what the endpoint was asked with the baseline."""
    loaded = load(recipe, overridden, environment)
    monitor, deploy = loaded.monitor, loaded.deploy
    if monitor is None or deploy is None:
        raise RecipeError(f"{recipe}: monitor: is missing; say monitor: {{}} beside deploy")
    if start_run and not monitor.retrain:
        raise RecipeError("--start: the recipe does not allow it; set monitor.retrain: true")
    given = pairs("--parameter", parameter)
    account = resolve(loaded.aws)
    refuse_other_caller(account_number(loaded.aws, environment), account.region)
    end = (until or datetime.now(UTC)).replace(tzinfo=UTC, microsecond=0)
    root = f"s3://{account.bucket}/{loaded.aws.prefix}/{loaded.pipeline.name}"
    s3 = client("s3", account.region)
    sagemaker = client("sagemaker", account.region)
    record = recorded(loaded, monitor, sagemaker, deploy.endpoint) if monitor.truths else None
    period = look(s3, loaded, monitor, f"{root}/{CAPTURED}/{deploy.endpoint}", end, record)
    folder = f"{root}/monitoring/{end:%Y-%m-%dT%H-%M-%SZ}"
    write(s3, folder, period, monitor.least_psi, loaded.aws.kms_key)
    counts = f"{period.asked.number:,} requests, baseline {period.baseline.number:,} records"
    _say(f"{deploy.endpoint}, {monitor.days} days until {end:%F %R} UTC: {counts}")
    show(period)
    again, said = advice(period)
    _say(said)
    _say(folder)
    drifted = period.drifted(MISSING, VALUES, QUALITY)
    if drifted and monitor.topic:
        with service_errors(f"publishing to {monitor.topic}"):
            client("sns", account.region).publish(
                TopicArn=monitor.topic,
                Subject=f"{deploy.endpoint}: features that drifted: {len(drifted)}",
                Message=f"{said}\n{folder}",
            )
    if again and start_run:
        start(loaded.pipeline.name, given, region=account.region, fresh=True)
    raise typer.Exit(1 if drifted else 0)


if __name__ == "__main__":
    run(main)
