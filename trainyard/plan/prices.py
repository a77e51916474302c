"""Prices of machines: a dated table in the repository, refreshed from the AWS Price List API.

Every price names its source. A price that was derived, and not read from AWS's list for that region
and kind of job, is marked as estimated; so is every plan that uses it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from trainyard.aws_clients import create_client, service_errors
from trainyard.common import atomic_file
from trainyard.common.errors import ServiceError

PRICE_FILE = Path(__file__).with_name("prices.json")
TABLE = Path(os.environ.get("TRAINYARD_PRICES") or PRICE_FILE)
"""File of the price table that is read: the user's own if the environment variable names one."""

ENDPOINT = "us-east-1"  # the Price List API exists in few regions; requests filter by region
Kind = Literal["training", "processing"]
SPOT_LOW = 0.1
"""Lowest price of managed spot training, as a share of the on-demand price: "can optimize the cost
of training models up to 90% over on-demand" (developer guide, "Managed Spot Training in Amazon
SageMaker AI"). The actual price is known only when the job has run."""

HOURS_A_MONTH = 730  # AWS's own calculator: 8760 hours a year / 12
_USAGE = re.compile(r"(?:[A-Z0-9]+-)?(Train|Processing):(ml\.[a-z0-9-]+\.[a-z0-9]+)")
_KINDS: Mapping[str, Kind] = {"Train": "training", "Processing": "processing"}
_STORAGE: Mapping[str, Kind] = {
    "of Training Job ML storage": "training",
    "of Processing ML storage": "processing",
}
"""Mapping of the end of a storage product's description in the price list to the kind of job. The
texts are those of an invoice: aws-samples/sagemaker-ssh-helper, Sample_Costs.md."""


@dataclass(frozen=True, slots=True)
class Price:
    """A price in USD; ``is_estimated`` if it was derived and not read from AWS's list."""

    usd: float
    is_estimated: bool


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of one region."""

    region: str
    date: str | None
    """Day on which the region's prices were read, ``YYYY-MM-DD``; None if it has no prices."""

    table: Mapping[str, Any]
    sources: Mapping[str, Any]

    def find_hourly(self, kind: Kind, instance_type: str) -> Price | None:
        """Return the price of one instance in USD per hour; None if the table does not have it."""
        return self._parse_price(self.table.get(kind, {}).get(instance_type))

    def find_storage(self, kind: Kind) -> Price | None:
        """Return the price of storage in USD per GB and month; None if the table has none."""
        return self._parse_price(self.table.get("storage", {}).get(kind))

    def compute_cluster(
        self, kind: Kind, instance_type: str, count: int, volume_gb: float = 0.0, share: float = 1.0
    ) -> Price | None:
        """Return the price of several instances with a volume each, in USD per hour.

        Return None if the table does not have the instance type.

        Args:
            kind: kind of job.
            instance_type: type of all instances.
            count: number of instances.
            volume_gb: size of each instance's volume, in GB.
            share: share of the instances' on-demand price that is charged, such as for spot.
        """
        machine, disk = self.find_hourly(kind, instance_type), self.find_storage(kind)
        if machine is None:
            return None
        disks = disk.usd * volume_gb / HOURS_A_MONTH if disk else 0.0
        is_estimated = machine.is_estimated or bool(disk and volume_gb and disk.is_estimated)
        return Price(count * (machine.usd * share + disks), is_estimated)

    def _parse_price(self, entry: Mapping[str, Any] | None) -> Price | None:
        if entry is None:
            return None
        return Price(entry["usd"], self.sources[entry["source"]]["estimated"])


def load_prices(region: str, path: Path = TABLE) -> Prices:
    """Return the prices of ``region``; they are empty if the table does not have the region."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    table = tree["regions"].get(region, {})
    return Prices(region, table.get("date"), table, tree["sources"])


def refresh_prices(region: str, path: Path = TABLE) -> int:
    """Replace the region's prices in the table by those of the Price List API.

    Return the number of prices.

    Raises:
        ServiceError: there are no credentials, AWS refused, or it lists nothing for the region.
            The table is then unchanged.
    """
    table: dict[str, Any] = {"training": {}, "processing": {}, "storage": {}}
    with service_errors(f"reading prices of {region}"):
        for section, name, usd in _list_prices(create_client("pricing", ENDPOINT), region):
            table[section][name] = {"usd": usd, "source": "GetProducts"}
    if not table["training"] or not table["processing"]:
        raise ServiceError(
            f"reading prices of {region}: AWS lists no training or no processing there; check "
            "that it is a region's code, such as us-east-1. The table is unchanged"
        )
    # The user's own table begins as a copy of the shipped one, which has other regions as well.
    tree = json.loads((path if path.exists() else PRICE_FILE).read_text(encoding="utf-8"))
    sorted_table = {section: dict(sorted(entries.items())) for section, entries in table.items()}
    tree["regions"][region] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", **sorted_table}
    tree["sources"]["GetProducts"] = {"what": "AWS Price List API, GetProducts", "estimated": False}
    # Write one price per line, so that version control shows which prices changed.
    entry = r'\{\s+"usd": ([^,]+),\s+"source": ("[^"]+")\s+\}'
    text = re.sub(entry, r'{"usd": \1, "source": \2}', json.dumps(tree, indent=1)) + "\n"
    atomic_file.write_file(path, text)
    return sum(len(entries) for entries in table.values())


def _list_prices(pricing: Any, region: str) -> Iterator[tuple[str, str, float]]:
    """Iterate over (section of the table, name in the section, USD) of the on-demand prices."""
    region_filter = {"Type": "TERM_MATCH", "Field": "regionCode", "Value": region}
    pages = pricing.get_paginator("get_products")
    for page in pages.paginate(ServiceCode="AmazonSageMaker", Filters=[region_filter]):
        for item in page["PriceList"]:
            offer = json.loads(item)
            for usd, unit, description in _iter_dimensions(offer):
                if entry := _parse_usage(offer["product"]["attributes"], unit, description):
                    yield *entry, usd


def _parse_usage(
    attributes: Mapping[str, str], unit: str, description: str
) -> tuple[str, str] | None:
    """Return the (section, name) of a product's price in the table; None if the table does not
    include it.

    They are read from the usage type, because most products leave ``instanceType`` empty.
    """
    usage = _USAGE.fullmatch(attributes.get("usagetype", ""))
    if usage and unit == "Hrs":
        return _KINDS[usage[1]], usage[2]
    kind = next((kind for end, kind in _STORAGE.items() if description.endswith(end)), None)
    return ("storage", kind) if kind and unit == "GB-Mo" else None


def _iter_dimensions(offer: Mapping[str, Any]) -> Iterator[tuple[float, str, str]]:
    """Iterate over (USD, unit, description) of an offer's on-demand prices."""
    for term in offer["terms"].get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0))
            # A price of 0 is the free tier's, and not what an hour costs.
            if usd > 0:
                yield usd, dimension["unit"], dimension["description"]
