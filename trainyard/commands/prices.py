"""Refresh the table of prices from the AWS Price List API.

trainyard prices --region us-east-1       # needs pricing:GetProducts

The environment variable TRAINYARD_PRICES may name a file with a table of your own, which starts as
a copy of the shipped table.
"""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.plan.prices import TABLE, refresh_prices
from trainyard.terminal import console


def main(
    region: Annotated[str, typer.Option(help="Region whose prices to read, such as us-east-1.")],
    table: Annotated[Path, typer.Option(help="The table to write.")] = TABLE,
) -> None:
    """Refresh the table of prices from the AWS Price List API."""
    count = refresh_prices(region, table)
    console.print(f"{count} prices of {region} in {table}", highlight=False)
