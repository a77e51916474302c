"""Run the loop by the commands that people type, and record what happens.

A pipeline's first model serves, under load from here to the end. The monitor finds nothing. Then
two features of the requests move: the monitor names them, and once their truths are there the
answers' quality, too; it starts the pipeline on data that hold what was asked since. The new
package passes the gate, is approved, and comes into service as a canary.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import CHECKOUT
from benchmarks.measured_process import create_boto_client, run_emulator
from benchmarks.whole_loop.flight_requests import MOVED, Flights, compress_csv
from pipelines.endpoint.rollout import find_served_package
from pipelines.recipe.read_recipe import load_recipe
from pipelines.registry.champion import find_champion
from pipelines.registry.package_evidence import split_s3_uri
from tests.endpoint_load import Ended, Load

RECIPE = Path(__file__).with_name("loop.yaml")
BUCKET, NAME = "trainyard-laptop", "trainyard-flights"
RAW, TRUTHS = f"s3://{BUCKET}/raw/nycflights13/", f"s3://{BUCKET}/truths/"
FIRST, SINCE = f"{RAW}2013/flights.csv.gz", f"{RAW}asked/flights.csv.gz"
CLIENTS, PAUSE = 3, 0.1
CALM, DRIFTING, AFTER = 350, 600, 300
"""Requests before the monitor looks, before it looks again, and after the last step."""


@dataclass
class Seen:
    """Record of what happened in the loop."""

    flights: Flights
    ended: list[Ended] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)
    """Name of an event → seconds since the epoch."""
    named: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Name of a run of the monitor → the violations that it reported."""
    packages: list[str] = field(default_factory=list)
    """ARNs, in the order in which they came into service."""
    serving: str | None = None
    """ARN of the package that serves at the end."""
    champion: str | None = None
    """ARN of the package that the next run would be compared with."""
    slices: list[dict[str, Any]] = field(default_factory=list)
    """The second gate's slices: the improvement on the old data, and on the new."""
    recorded: list[float] = field(default_factory=list)
    """log_loss of each package as its evaluation recorded it."""


class Company:
    """A team with a laptop: it runs the pipeline's commands, and has clients of its AWS."""

    def __init__(self, variables: Mapping[str, str], home: Path) -> None:
        clean = {name: os.environ[name] for name in os.environ if not name.startswith("AWS_")}
        self._environment = clean | {**variables, "HOME": str(home), "COLUMNS": "200"}
        self.s3 = create_boto_client(variables, "s3")
        self.sagemaker = create_boto_client(variables, "sagemaker")

    def run_command(self, name: str, *words: str, recipe: bool = True, status: int = 0) -> str:
        """Run a command of the pipeline, such as ``deploy``, and return what it printed.

        Raises:
            RuntimeError: it ended with another status.
        """
        given = ["--recipe", str(RECIPE)] if recipe else []
        command = [sys.executable, "-m", f"pipelines.{name}", *words, *given]
        done = subprocess.run(command, cwd=CHECKOUT, env=self._environment, capture_output=True,
                              text=True, check=False)  # fmt: skip
        if done.returncode != status:
            raise RuntimeError(f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def put_object(self, uri: str, body: bytes) -> None:
        """Write an object to S3."""
        bucket, key = split_s3_uri(uri)
        self.s3.put_object(Bucket=bucket, Key=key, Body=body)

    def read_json(self, uri: str) -> Any:
        """Return the parsed content of an object in S3."""
        bucket, key = split_s3_uri(uri)
        return json.loads(self.s3.get_object(Bucket=bucket, Key=key)["Body"].read())


def rehearse(state: Path) -> Seen:
    """Run the loop on an emulator of its own, with its state in ``state``.

    Raises:
        RuntimeError: a command ended with an unexpected status.
    """
    recipe = load_recipe(RECIPE)
    config: Any = recipe.workload_config
    seen = Seen(Flights([*config.categories, *config.numbers]))
    with run_emulator(state) as (_, variables):
        company = Company(variables, state)
        company.s3.create_bucket(Bucket=BUCKET)
        company.put_object(FIRST, compress_csv(seen.flights.trained))
        run = company.run_command("upsert", "--start", "--wait")
        _approve_and_deploy(company, seen, run)
        with Load(variables, NAME, seen.flights.request, CLIENTS, PAUSE) as clients:
            seen.ended = clients.ended
            _let_features_drift(company, seen)
            _wait_for_requests(seen, AFTER)
        seen.serving = find_served_package(company.sagemaker, NAME)
        seen.champion = find_champion(company.sagemaker, NAME, NAME)
    return seen


def find_faults(seen: Seen) -> list[str]:
    """Return the expectations that were not met; empty if all were."""
    names = {
        look: {one.get("feature_name") or one["metric_name"] for one in violations}
        for look, violations in seen.named.items()
    }
    found = []
    if names["calm"]:
        found.append(f"the monitor named {names['calm']} before anything moved")
    if names["moved"] != {*MOVED, "log_loss"}:
        found.append(f"the monitor named {names['moved']}; {MOVED} moved, and log_loss is worse")
    if not seen.serving == seen.champion == seen.packages[-1] or len(seen.packages) != 2:
        found.append(f"{seen.packages}: {seen.serving} serves, the champion is {seen.champion}")
    tested = {one["slice"]: one["value"] for one in seen.slices}
    if tested.keys() != {"source=2013", "source=asked"} or not tested["source=asked"] > 0:
        found.append(f"by old and new data the new model is better by {tested}")
    lost = [one for one in seen.ended if not one.answer]
    if lost or not seen.ended:
        found.append(f"{len(lost)} of {len(seen.ended)} requests were lost: {lost[:3]}")
    if {one.variant for one in seen.ended} != {"version-1", "version-2"}:
        found.append("not both models answered")
    return found


def _let_features_drift(company: Company, seen: Seen) -> None:
    """Let two features move once the monitor found nothing; train again, and deploy."""
    _wait_for_requests(seen, CALM)
    _run_monitor(company, seen, "calm")
    seen.flights.moved, seen.moments["two features move"] = True, time.time()
    _wait_for_requests(seen, max(DRIFTING, len(seen.ended)))  # on a busy machine more were calm
    _upload_truths(company, seen)
    run = _run_monitor(company, seen, "moved", "--start", status=1)
    execution = _parse_execution(run)
    company.run_command("watch", execution, recipe=False)
    _approve_and_deploy(company, seen, run)


def _wait_for_requests(seen: Seen, requests: int) -> None:
    """Wait for ``requests`` more requests."""
    enough = len(seen.ended) + requests
    while len(seen.ended) < enough:
        time.sleep(0.2)


def _upload_truths(company: Company, seen: Seen) -> None:
    """Upload the truths of all answered requests, and their flights for the next training."""
    numbers = [one.number for one in seen.ended if one.answer]
    company.put_object(f"{TRUTHS}{time.strftime('%Y/%m/%d/%H', time.gmtime())}/truths.jsonl",
                seen.flights.format_truths(numbers))  # fmt: skip
    company.put_object(SINCE, compress_csv(seen.flights.look_up_flights(numbers)))


def _run_monitor(company: Company, seen: Seen, name: str, *words: str, status: int = 0) -> str:
    """Run the monitor, and keep what it found."""
    time.sleep(2)  # the endpoint writes what it captured every second
    seen.moments[f"monitor: {name}"] = time.time()
    output = company.run_command("monitor", *words, status=status)
    [folder] = re.findall(r"^(s3://\S+/monitoring/\S+)$", output, re.MULTILINE)
    seen.named[name] = company.read_json(f"{folder}/constraint_violations.json")["violations"]
    return output


def _approve_and_deploy(company: Company, seen: Seen, run: str) -> None:
    """Approve the package that a run registered, and deploy it."""
    output = company.run_command("approve", "--execution", _parse_execution(run), recipe=False)
    [package] = re.findall(r"^(arn:\S+): Approved", output, re.MULTILINE)
    described = company.sagemaker.describe_model_package(ModelPackageName=package)
    quality = described["ModelMetrics"]["ModelQuality"]
    evaluation = company.read_json(quality["Statistics"]["S3Uri"])
    seen.slices = company.read_json(quality["Constraints"]["S3Uri"])["slices"]
    seen.packages.append(package)
    seen.recorded.append(evaluation["metrics"]["log_loss"]["value"])
    seen.moments[f"deploy {len(seen.packages)}"] = time.time()
    company.run_command("deploy", package)
    seen.moments[f"served {len(seen.packages)}"] = time.time()


def _parse_execution(output: str) -> str:
    return re.findall(r"^started (arn:\S+)", output, re.MULTILINE)[0]
