"""Prices of machines: a dated table in the repository, refreshed from the AWS Price List API.

Every price names its source. A derived price, which was not read from AWS's list for that region
and that kind of job, is marked as estimated, and so is every plan that uses it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from trainyard.aws_clients import client, service_errors
from trainyard.common import atomic_file
from trainyard.common.errors import ServiceError

PRICE_FILE = Path(__file__).with_name("prices.json")
TABLE = Path(os.environ.get("TRAINYARD_PRICES") or PRICE_FILE)
"""The table that is read: of your own, outside of this folder, where the variable names one."""

ENDPOINT = "us-east-1"  # the Price List API is in few regions; the wanted region is a filter
Kind = Literal["training", "processing"]
SPOT_LOW = 0.1
"""Managed spot training costs between this share of the on-demand price and all of it: "can
optimize the cost of training models up to 90% over on-demand" (developer guide, "Managed Spot
Training in Amazon SageMaker AI"). The actual price is known when the job has run."""

HOURS_A_MONTH = 730  # AWS's own calculator: 8760 hours a year / 12
_USAGE = re.compile(r"(?:[A-Z0-9]+-)?(Train|Processing):(ml\.[a-z0-9-]+\.[a-z0-9]+)")
_KINDS: Mapping[str, Kind] = {"Train": "training", "Processing": "processing"}
_STORAGE: Mapping[str, Kind] = {
    "of Training Job ML storage": "training",
    "of Processing ML storage": "processing",
}
"""Ends of the price list's descriptions of storage, as an invoice shows them:
aws-samples/sagemaker-ssh-helper, Sample_Costs.md."""


@dataclass(frozen=True, slots=True)
class Price:
    """A price in USD; ``estimated`` if it was derived and not read from AWS's list."""

    usd: float
    is_estimated: bool


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of one region."""

    region: str
    date: str | None
    """Day of the table; None if the region has none."""

    table: Mapping[str, Any]
    sources: Mapping[str, Any]

    def hourly(self, kind: Kind, instance_type: str) -> Price | None:
        """Return USD per hour and instance; None if the table does not have the type."""
        return self._price(self.table.get(kind, {}).get(instance_type))

    def storage(self, kind: Kind) -> Price | None:
        """Return USD per GB and month."""
        return self._price(self.table.get("storage", {}).get(kind))

    def cluster(
        self,
        kind: Kind,
        instance_type: str,
        count: int,
        volume_gb: float = 0.0,
        share: float = 1.0,
    ) -> Price | None:
        """Return USD per hour of ``count`` instances with a disk each; None without a price.

        Args:
            share: of the instances' price on demand that is charged.
        """
        machine, disk = self.hourly(kind, instance_type), self.storage(kind)
        if machine is None:
            return None
        disks = disk.usd * volume_gb / HOURS_A_MONTH if disk else 0.0
        is_estimated = machine.is_estimated or bool(disk and volume_gb and disk.is_estimated)
        return Price(count * (machine.usd * share + disks), is_estimated)

    def _price(self, entry: Mapping[str, Any] | None) -> Price | None:
        if entry is None:
            return None
        return Price(entry["usd"], self.sources[entry["source"]]["estimated"])


def load(region: str, path: Path = TABLE) -> Prices:
    """Return the prices of ``region``; without any if the table does not have it."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    table = tree["regions"].get(region, {})
    return Prices(region, table.get("date"), table, tree["sources"])


def refresh(region: str, path: Path = TABLE) -> int:
    """Replace the region's prices by those of the Price List API; return their number.

    Raises:
        ServiceError: no credentials, AWS refused, or it lists nothing for the region.
    """
    table: dict[str, Any] = {"training": {}, "processing": {}, "storage": {}}
    with service_errors(f"reading prices of {region}"):
        for section, name, usd in _list_prices(client("pricing", ENDPOINT), region):
            table[section][name] = {"usd": usd, "source": "GetProducts"}
    if not table["training"] or not table["processing"]:
        raise ServiceError(
            f"reading prices of {region}: AWS lists no training or no processing there; is that "
            "a region's code, such as us-east-1? The table was left as it was"
        )
    # A table of one's own begins as a copy of the shipped one, with its other regions.
    tree = json.loads((path if path.exists() else PRICE_FILE).read_text(encoding="utf-8"))
    sorted_table = {section: dict(sorted(entries.items())) for section, entries in table.items()}
    tree["regions"][region] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", **sorted_table}
    tree["sources"]["GetProducts"] = {"what": "AWS Price List API, GetProducts", "estimated": False}
    # One price per line.
    entry = r'\{\s+"usd": ([^,]+),\s+"source": ("[^"]+")\s+\}'
    text = re.sub(entry, r'{"usd": \1, "source": \2}', json.dumps(tree, indent=1)) + "\n"
    atomic_file.write(path, text)
    return sum(len(entries) for entries in table.values())


def _list_prices(pricing: Any, region: str) -> Iterator[tuple[str, str, float]]:
    """Iterate over (table's section, name in it, USD) of the region's offers on demand."""
    region_filter = {"Type": "TERM_MATCH", "Field": "regionCode", "Value": region}
    pages = pricing.get_paginator("get_products")
    for page in pages.paginate(ServiceCode="AmazonSageMaker", Filters=[region_filter]):
        for item in page["PriceList"]:
            offer = json.loads(item)
            for usd, unit, description in _dimensions(offer):
                if entry := _parse_usage(offer["product"]["attributes"], unit, description):
                    yield *entry, usd


def _parse_usage(
    attributes: Mapping[str, str], unit: str, description: str
) -> tuple[str, str] | None:
    """Return (section, name) by the usage type: most products leave ``instanceType`` empty."""
    usage = _USAGE.fullmatch(attributes.get("usagetype", ""))
    if usage and unit == "Hrs":
        return _KINDS[usage[1]], usage[2]
    kind = next((kind for end, kind in _STORAGE.items() if description.endswith(end)), None)
    return ("storage", kind) if kind and unit == "GB-Mo" else None


def _dimensions(offer: Mapping[str, Any]) -> Iterator[tuple[float, str, str]]:
    for term in offer["terms"].get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0))
            # The rows of a free tier cost nothing, and are no prices.
            if usd > 0:
                yield usd, dimension["unit"], dimension["description"]
