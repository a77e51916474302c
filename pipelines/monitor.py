"""Test whether an endpoint's requests still match the training data; say whether to retrain.

python -m pipelines.monitor --recipe recipes/prod.yaml [--until 2026-11-28]
python -m pipelines.monitor --recipe recipes/prod.yaml --start [--parameter InputUri=s3://…]

Each feature of the endpoint's captured requests, and its responses, are compared with the baseline,
and the responses whose truths are known with the evaluation, as the recipe's ``monitor`` says. The
files written are Model Monitor's. Exit status: 0 without drift, 1 with drift. With --start, the
pipeline is started within its budget if values drifted or responses got worse. Missing values do
not start it: they are a fault of the sender, which no training can fix.
"""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pipelines.endpoint.answer_quality import read_recorded_quality
from pipelines.endpoint.drift import MISSING, QUALITY, VALUES
from pipelines.endpoint.endpoint_requests import CAPTURE_FOLDER
from pipelines.endpoint.period import Period, compare_period, write_monitor_files
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.environments import find_account, refuse_other_caller, resolve_account
from pipelines.recipe.read_recipe import load_recipe
from pipelines.start import start
from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import RecipeError
from trainyard.terminal import console, parse_pairs, run

MAX_QUIET_ROWS = 15
"""Maximum number of rows without drift in the table."""


def advise_retraining(period: Period) -> tuple[bool, str]:
    """Return (whether to retrain, a sentence with the advice and its reason)."""
    empty, moved_features, worse = map(period.list_drifted_features, (MISSING, VALUES, QUALITY))
    if empty:
        names = ", ".join(empty)
        return False, f"do not retrain yet: first find out why values of {names} are missing"
    if moved_features or worse:
        reasons = [f"{', '.join(moved_features)} drifted"] if moved_features else []
        reasons += [f"{', '.join(worse)} is worse than when it was evaluated"] if worse else []
        return True, f"retrain on newer records: {'; '.join(reasons)}"
    return False, "no drift: no need to retrain"


def print_changes(period: Period) -> None:
    """Print the changes, those with drift first."""
    table = Table("feature", "what", "PSI", "Holm's p", "", box=None, pad_edge=False)
    quiet = 0
    for change in period.changes:
        quiet += not change.has_drifted
        if quiet <= MAX_QUIET_ROWS:
            style = "bold red" if change.has_drifted else None
            index = "" if change.psi is None else f"{change.psi:.3f}"
            cells = (index, f"{change.p_value:.2g}", "drift" if style else "")
            table.add_row(escape(change.feature), escape(change.movement), *cells, style=style)
    console.print(table, highlight=False)
    for line in (
        f"… and {quiet - MAX_QUIET_ROWS} more without drift" if quiet > MAX_QUIET_ROWS else "",
        *period.notes,
    ):
        if line:
            _print_line(line)


def _print_line(line: str) -> None:
    console.print(line, highlight=False, markup=False)


def main(
    recipe: RecipeOption,
    overridden: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    until: Annotated[
        datetime | None, typer.Option(help="End of the compared days, in UTC; default: now.")
    ] = None,
    start_run: Annotated[
        bool, typer.Option("--start", help="Start the pipeline if the model should be retrained.")
    ] = False,
    parameter: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="A pipeline parameter for that run.")
    ] = NOT_GIVEN,
) -> None:
    """Compare the endpoint's requests and responses with the baseline."""
    recipe_config = load_recipe(recipe, overridden, environment)
    monitor, deploy = recipe_config.monitor, recipe_config.deploy
    if monitor is None or deploy is None:
        raise RecipeError(f"{recipe}: monitor: is missing; set monitor: {{}} in addition to deploy")
    if start_run and not monitor.retrain:
        raise RecipeError("--start: the recipe does not allow it; set monitor.retrain: true")
    parameters = parse_pairs("--parameter", parameter)
    account = resolve_account(recipe_config.aws)
    refuse_other_caller(find_account(recipe_config.aws, environment), account.region)
    end = (until or datetime.now(UTC)).replace(tzinfo=UTC, microsecond=0)
    root = f"s3://{account.bucket}/{recipe_config.aws.prefix}/{recipe_config.pipeline.name}"
    s3 = create_client("s3", account.region)
    sagemaker = create_client("sagemaker", account.region)
    record = (
        read_recorded_quality(recipe_config, monitor, sagemaker, deploy.endpoint)
        if monitor.truths
        else None
    )
    period = compare_period(
        s3, recipe_config, monitor, f"{root}/{CAPTURE_FOLDER}/{deploy.endpoint}", end, record
    )
    folder = f"{root}/monitoring/{end:%Y-%m-%dT%H-%M-%SZ}"
    write_monitor_files(s3, folder, period, monitor.least_psi, recipe_config.aws.kms_key)
    counts = f"{period.requests.number:,} requests, baseline {period.baseline.number:,} records"
    _print_line(f"{deploy.endpoint}, {monitor.days} days until {end:%F %R} UTC: {counts}")
    print_changes(period)
    should_retrain, advice_text = advise_retraining(period)
    _print_line(advice_text)
    _print_line(folder)
    drifted_features = period.list_drifted_features(MISSING, VALUES, QUALITY)
    if drifted_features and monitor.topic:
        with service_errors(f"publishing to {monitor.topic}"):
            create_client("sns", account.region).publish(
                TopicArn=monitor.topic,
                Subject=f"{deploy.endpoint}: features that drifted: {len(drifted_features)}",
                Message=f"{advice_text}\n{folder}",
            )
    if should_retrain and start_run:
        start(recipe_config.pipeline.name, parameters, region=account.region, fresh=True)
    raise typer.Exit(1 if drifted_features else 0)


if __name__ == "__main__":
    run(main)
