"""The loop itself, by the verbs that people type; what was asked and answered, and when.

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
from benchmarks.measured_process import client, emulator
from benchmarks.whole_loop.flight_requests import MOVED, Flights, table
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
    """What happened."""

    flights: Flights
    ended: list[Ended] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)
    """Name of an event → seconds since the epoch."""
    named: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Name of a look of the monitor → its constraint_violations.json."""
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
    """A team with a laptop: the verbs, and its AWS."""

    def __init__(self, told: Mapping[str, str], home: Path) -> None:
        clean = {name: os.environ[name] for name in os.environ if not name.startswith("AWS_")}
        self.told = told
        self._environment = clean | {**told, "HOME": str(home), "COLUMNS": "200"}
        self.s3 = client(told, "s3")
        self.sagemaker = client(told, "sagemaker")

    def verb(self, name: str, *words: str, recipe: bool = True, status: int = 0) -> str:
        """Run a verb of the pipeline and return what it printed.

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

    def put(self, uri: str, body: bytes) -> None:
        """Write an object."""
        bucket, key = split_s3_uri(uri)
        self.s3.put_object(Bucket=bucket, Key=key, Body=body)

    def json(self, uri: str) -> Any:
        """Return the content of an object."""
        bucket, key = split_s3_uri(uri)
        return json.loads(self.s3.get_object(Bucket=bucket, Key=key)["Body"].read())


def rehearse(state: Path) -> Seen:
    """Run the loop on an emulator of its own, with its state in ``state``.

    Raises:
        RuntimeError: a verb ended otherwise than it should.
    """
    recipe = load_recipe(RECIPE)
    config: Any = recipe.workload_config
    seen = Seen(Flights([*config.categories, *config.numbers]))
    with emulator(state) as (_, told):
        company = Company(told, state)
        company.s3.create_bucket(Bucket=BUCKET)
        company.put(FIRST, table(seen.flights.trained))
        run = company.verb("upsert", "--start", "--wait")
        _serve(company, seen, run)
        with Load(told, NAME, seen.flights.request, CLIENTS, PAUSE) as clients:
            seen.ended = clients.ended
            _drift(company, seen)
            _wait(seen, AFTER)
        seen.serving = find_served_package(company.sagemaker, NAME)
        seen.champion = find_champion(company.sagemaker, NAME, NAME)
    return seen


def faults(seen: Seen) -> list[str]:
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


def _drift(company: Company, seen: Seen) -> None:
    """Let two features move once the monitor found nothing; train again, and deploy."""
    _wait(seen, CALM)
    _run_monitor(company, seen, "calm")
    seen.flights.moved, seen.moments["two features move"] = True, time.time()
    _wait(seen, max(DRIFTING, len(seen.ended)))  # on a busy machine more were calm
    _know(company, seen)
    run = _run_monitor(company, seen, "moved", "--start", status=1)
    execution = _execution(run)
    company.verb("watch", execution, recipe=False)
    _serve(company, seen, run)


def _wait(seen: Seen, requests: int) -> None:
    """Wait for so many more requests."""
    enough = len(seen.ended) + requests
    while len(seen.ended) < enough:
        time.sleep(0.2)


def _know(company: Company, seen: Seen) -> None:
    """What was asked so far is known: its truths, and with them records for the next training."""
    numbers = [one.number for one in seen.ended if one.answer]
    company.put(f"{TRUTHS}{time.strftime('%Y/%m/%d/%H', time.gmtime())}/truths.jsonl",
                seen.flights.truths(numbers))  # fmt: skip
    company.put(SINCE, table(seen.flights.look_up_flights(numbers)))


def _run_monitor(company: Company, seen: Seen, name: str, *words: str, status: int = 0) -> str:
    """Run the monitor, and keep what it found."""
    time.sleep(2)  # the endpoint writes what it captured every second
    seen.moments[f"monitor: {name}"] = time.time()
    said = company.verb("monitor", *words, status=status)
    [folder] = re.findall(r"^(s3://\S+/monitoring/\S+)$", said, re.MULTILINE)
    seen.named[name] = company.json(f"{folder}/constraint_violations.json")["violations"]
    return said


def _serve(company: Company, seen: Seen, run: str) -> None:
    """Approve what a run registered, and deploy it."""
    said = company.verb("approve", "--execution", _execution(run), recipe=False)
    [package] = re.findall(r"^(arn:\S+): Approved", said, re.MULTILINE)
    described = company.sagemaker.describe_model_package(ModelPackageName=package)
    quality = described["ModelMetrics"]["ModelQuality"]
    evaluation = company.json(quality["Statistics"]["S3Uri"])
    seen.slices = company.json(quality["Constraints"]["S3Uri"])["slices"]
    seen.packages.append(package)
    seen.recorded.append(evaluation["metrics"]["log_loss"]["value"])
    seen.moments[f"deploy {len(seen.packages)}"] = time.time()
    company.verb("deploy", package)
    seen.moments[f"served {len(seen.packages)}"] = time.time()


def _execution(said: str) -> str:
    return re.findall(r"^started (arn:\S+)", said, re.MULTILINE)[0]
