"""Record what an endpoint answers to small pipelines; compare two such files.

trainyard parity [--out FILE] [--against FILE] [--role ARN] [--yes]

Runs against AWS_ENDPOINT_URL, or the AWS account of the credentials; without an endpoint it first
shows the highest possible cost, and asks. It takes some twenty minutes on AWS, and removes what it
created.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trainyard.aws_clients import client
from trainyard.common import atomic_file
from trainyard.common.errors import ServiceError
from trainyard.parity.cases import CASES, INSTANCE, JOBS, SECONDS
from trainyard.parity.recording import Run, differences
from trainyard.plan.prices import load

people = Console(stderr=True, highlight=False, soft_wrap=True)
_IMAGES = {
    "us-east-1": "683313688378",
    "us-east-2": "257758044811",
    "us-west-2": "246618743249",
    "eu-west-1": "141502667606",
    "eu-central-1": "492215442770",
}
"""Region → the registry of AWS's scikit-learn image, of which only bash is used."""


def main(
    out: Annotated[Path | None, typer.Option(help="File for the answers, as JSON.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="File of earlier answers to compare with.")
    ] = None,
    role: Annotated[str, typer.Option(help="A role that SageMaker may assume, on AWS.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it costs money.")] = False,
) -> None:
    """Record what an endpoint answers; exit 1 when it differs from --against."""
    sts = client("sts")
    region = sts.meta.region_name
    local = "AWS_ENDPOINT_URL" in os.environ
    if not local and not yes:
        typer.confirm(f"{costs(region)} Go on?", abort=True)
    run = _run(region, sts.get_caller_identity(), role, local)
    found = recorded(run)
    if out:
        atomic_file.write(out, json.dumps(found, indent=1, sort_keys=True) + "\n")
    lines = list(differences(found, json.loads(against.read_text()))) if against else []
    for line in lines:
        print(line)
    people.print(f"{len(found['cases'])} cases" + (f", {len(lines)} differ" if against else ""))
    raise typer.Exit(1 if lines else 0)


def costs(region: str) -> str:
    """Return a sentence about the highest cost of a run on AWS."""
    price = load(region).hourly("processing", INSTANCE)
    jobs = f"{JOBS} processing jobs on {INSTANCE}, each at most {SECONDS // 60} minutes"
    if price is None:
        return f"It starts {jobs} in {region}, whose prices are not known here."
    most = JOBS * SECONDS / 3600 * price.usd * 100
    return f"It starts {jobs} in {region}: at most {most:.1f} US cents."


def recorded(run: Run) -> dict[str, Any]:
    """Return every case's record; created resources are removed, even after an error."""
    cases = {}
    try:
        for name, case in CASES.items():
            people.print(name)
            run.recorded = []
            case(run)
            cases[name] = run.recorded
    finally:
        for line in run.clean():
            people.print(f"not removed: {line}", markup=False)
    return {"format": 1, "cases": cases}


def _run(region: str, who: dict[str, str], role: str, local: bool) -> Run:
    account = who["Account"]
    if not local and (not role or region not in _IMAGES):
        known = ", ".join(_IMAGES)
        raise ServiceError(f"parity on AWS needs --role ARN and a region of {known}; not {region}")
    registry = _IMAGES.get(region, _IMAGES["us-east-1"])
    chance = secrets.token_hex(4)
    bucket = f"trainyard-parity-{chance}-{account}"
    s3 = client("s3")
    where = {} if region == "us-east-1" else {"LocationConstraint": region}
    made = {"CreateBucketConfiguration": where} if where else {}
    s3.create_bucket(Bucket=bucket, **made)
    return Run(
        sagemaker=client("sagemaker"),
        s3=s3,
        prefix=f"parity-{chance}-",
        bucket=bucket,
        role=role or f"arn:aws:iam::{account}:role/parity",
        image=f"{registry}.dkr.ecr.{region}.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3",
        account=account,
        region=region,
        poll=0.05 if local else 5.0,
    )
