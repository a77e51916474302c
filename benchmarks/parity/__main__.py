"""Compare an endpoint's answers to small pipelines with those of the emulator.

python -m benchmarks.parity [--out FILE] [--rows FILE] [--role ARN] [--only CASE] [--yes]
python -m benchmarks.parity --compare FILE [--rows FILE]    of a sent record; runs nothing

Runs against AWS_ENDPOINT_URL, or the AWS account of the credentials; there it first says what it
starts, makes and costs at most, and asks. It removes what it made. Exit status 1 when something
differs from the emulator's own record.
"""

import os
import secrets
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.parity.case_table import CASES, costs
from benchmarks.parity.comparison_rows import Difference, differences, published
from benchmarks.parity.record import EMULATOR, read, recorded, write
from benchmarks.parity.recording import FAILURES, Place
from trainyard.aws_clients import client, service_errors
from trainyard.common import atomic_file
from trainyard.common.errors import ServiceError, nearest
from trainyard.terminal import run

people = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
_REGISTRIES = {
    "us-east-1": "683313688378",
    "us-east-2": "257758044811",
    "us-west-2": "246618743249",
    "eu-west-1": "141502667606",
    "eu-central-1": "492215442770",
}
"""Region → the account of AWS's scikit-learn and XGBoost images."""


def main(
    out: Annotated[Path | None, typer.Option(help="File for the answers, as JSON.")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Record to compare with the emulator's; runs nothing.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="File for the differences, as tests/published has them.")
    ] = None,
    role: Annotated[
        str, typer.Option(help="A role that SageMaker and Lambda may assume, on AWS.")
    ] = "",
    only: Annotated[list[str] | None, typer.Option(metavar="CASE", help="This case.")] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Cases that run side by side.")] = 4,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it costs money.")] = False,
) -> None:
    """Record an endpoint's answers, and show what differs from the emulator; then exit 1."""
    found = read(compare) if compare else _recorded(_chosen(only), role, at_once, yes)
    if out:
        write(out, found)
    differing = list(differences(found, read(EMULATOR)))
    _show(differing, found)
    if rows:
        atomic_file.write(rows, published(found, differing))
    raise typer.Exit(1 if differing else 0)


def _chosen(only: list[str] | None) -> list[str]:
    for name in only or ():
        if name not in CASES:
            raise ServiceError(f"--only {name}: no such case; {nearest(name, list(CASES))}")
    return only or list(CASES)


def _show(differing: list[Difference], record: dict[str, Any]) -> None:
    if differing:
        print("case\tcall\tfield\trecorded\temulator")
    for each in differing:
        print(each)
    for name, why in record["not_recorded"].items():
        people.print(f"not recorded: {name}: {why}")
    people.print(f"{len(record['cases'])} cases, {len(differing)} differences")


def _recorded(names: list[str], role: str, at_once: int, yes: bool) -> dict[str, Any]:
    with service_errors("parity"):
        place = _place(role)
        local = "AWS_ENDPOINT_URL" in os.environ
        if not local:
            people.print(_announcement(place, names))
            if not yes:
                typer.confirm("Go on?", abort=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # it cleans up, as after Ctrl-C
        _make_bucket(place)
        try:
            return recorded(place, names, at_once, people.print)
        finally:
            try:
                _remove_bucket(place)
            except FAILURES as error:  # the record is worth more than the bucket
                people.print(f"not removed: bucket {place.bucket}: {error}")


def _announcement(place: Place, names: list[str]) -> str:
    return (
        f"cases: {len(names)}, in {place.region}; {costs(place.region, names)}. About a fifth of "
        "it, and 20 minutes, is likely.\nIt makes pipelines, functions, queues, a rule, a model, a "
        f"package and a bucket, all named {place.prefix}…, and removes them, also after Ctrl-C. "
        "A transform job stays in its list: SageMaker deletes none.\nThe role needs the policies "
        "AmazonSageMakerFullAccess and AmazonSageMakerPipelinesIntegrations."
    )


def _place(role: str) -> Place:
    sts = client("sts")
    region, who = sts.meta.region_name, sts.get_caller_identity()
    local = "AWS_ENDPOINT_URL" in os.environ
    if not local and (not role or region not in _REGISTRIES):
        known = ", ".join(_REGISTRIES)
        raise ServiceError(f"parity on AWS needs --role ARN and a region of {known}; not {region}")
    owner = _REGISTRIES.get(region, _REGISTRIES["us-east-1"])
    prefix = f"sagemaker-parity-{secrets.token_hex(4)}-"
    made = {name: client(name) for name in ("sagemaker", "s3", "sqs", "lambda", "logs", "events")}
    return Place(
        client=made.__getitem__,
        prefix=prefix,
        bucket=f"{prefix}{who['Account']}",
        role=role or f"arn:aws:iam::{who['Account']}:role/parity",
        registry=f"{owner}.dkr.ecr.{region}.amazonaws.com",
        account=who["Account"],
        region=region,
        names=_names(role, who["Arn"]),
        poll=0.05 if local else 5.0,
    )


def _names(*arns: str) -> tuple[str, ...]:
    """Return the names at the ends of the ARNs, without words that every record has."""
    common = EMULATOR.read_text(encoding="utf-8")
    return tuple(name for arn in arns if (name := arn.rpartition("/")[2]) not in common)


def _make_bucket(place: Place) -> None:
    where = {"LocationConstraint": place.region}
    made = {} if place.region == "us-east-1" else {"CreateBucketConfiguration": where}
    place.client("s3").create_bucket(Bucket=place.bucket, **made)


def _remove_bucket(place: Place) -> None:
    s3 = place.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=place.bucket):
        for item in page.get("Contents", []):
            s3.delete_object(Bucket=place.bucket, Key=item["Key"])
    s3.delete_bucket(Bucket=place.bucket)


if __name__ == "__main__":
    run(main, "python -m benchmarks.parity")
