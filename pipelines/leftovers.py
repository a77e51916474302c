"""List what costs money and belongs to no champion of a recipe's pipeline; delete nothing.

python -m pipelines.leftovers --recipe recipes/prod.yaml [--env prod] [--days 30]

Not listed is what is younger than ``--days``; what is named by the recipe, the champion, any other
Approved package, a package that an endpoint serves or would return to, or one of another group; and
what an execution used that still runs, or is younger. Each item has the command that removes it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from shlex import join
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pipelines.deploy.left_over import Item, left_over
from pipelines.recipe.aws_account import account_number, refuse_other_caller, resolve
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.read_recipe import load
from trainyard.common.errors import PlanError
from trainyard.language.cache_config import duration
from trainyard.plan.prices import HOURS_A_MONTH
from trainyard.terminal import console, run


def main(
    recipe: RecipeOption,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    days: Annotated[
        int, typer.Option(min=0, help="What is younger is not listed; at least cache.expire_after.")
    ] = 30,
) -> None:
    """List what costs money and belongs to no champion, with the commands that remove it."""
    loaded = load(recipe, overrides, environment)
    age = timedelta(days=days)
    if loaded.cache.enabled and age.total_seconds() < duration(loaded.cache.expire_after):
        raise PlanError(
            f"--days {days}: less than cache.expire_after {loaded.cache.expire_after}: a run would "
            "reuse results that were removed; give more days, or --set cache.enabled=false"
        )
    account = resolve(loaded.aws)
    refuse_other_caller(account_number(loaded.aws, environment), account.region)
    name, region = loaded.pipeline.name, account.region
    since = datetime.now(UTC) - age
    with console.status("reading models, executions, endpoints, objects"):
        place = f"s3://{account.bucket}/{loaded.aws.prefix}/{name}/"
        found = left_over(loaded, region, place, since)
    order = sorted(found, key=lambda one: (-(one.hourly or 0), -one.size, one.what))
    _show(order, name, days, region)


def _show(found: Sequence[Item], name: str, days: int, region: str) -> None:
    if not found:
        console.print(f"{name}: nothing is left over that is older than {days} days")
        return
    table = Table("what", "objects", "MB", "USD an hour", "because", box=None, pad_edge=False)
    for one in found:
        size = (f"{one.objects:,}", f"{one.size / 1e6:,.1f}") if one.objects else ("", "")
        rate = "" if one.hourly is None else f"~{one.hourly:,.3f}"
        table.add_row(escape(one.what), *size, rate, one.why)
    console.print(table, highlight=False)
    rate = sum(one.hourly or 0 for one in found)
    size = sum(one.size for one in found)
    _say(f"\nsum: {size / 1e9:,.3f} GB in S3 (the price table has no S3); machines "
         f"~{rate:,.3f} USD an hour, ~{rate * HOURS_A_MONTH:,.2f} a month")  # fmt: skip
    if unpriced := [one.what for one in found if one.hourly is None and not one.objects]:
        _say(f"not in the price table: {', '.join(unpriced)}")
    _say("\nNothing was deleted. To remove them:")
    for one in found:
        _say(join(("aws", *one.command, "--region", region)))


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    run(main)
