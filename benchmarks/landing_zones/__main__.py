"""Take our verbs through landing zones of invented companies, and through generated ones.

python -m benchmarks.landing_zones [--only bank,closed] [--generated 30] [--run] [--json FILE]

A zone is a folder of settings beside this checkout, of which no file is edited. On each of its
environments: validate, plan, package, infra (cfn-lint has nothing to say), what lies beside the
pipeline (storage, messages, the three CIs, linted as well), and permissions compared with that
template. With --run each invented zone, and each generated one that has an offline run, is
deployed as its company does it (upsert, CloudFormation, Terraform's stack) on an emulator with its
SCP and boundary, where the derived roles are held to their policies, and runs to a registered
package with all tags. Generated zones are pairwise combinations of settings, seeded. Ends with 1
where something fails.
"""

import importlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import boto3
import typer

from benchmarks.harness import JsonFile, chosen, keep, show_table
from benchmarks.landing_zones import offline_run
from benchmarks.landing_zones.generated import generated
from benchmarks.landing_zones.verbs import Outcome, tried
from benchmarks.landing_zones.zones import Zone, invented
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.server import serve
from trainyard.permissions.policy_documents import control_policies

VERBS = (*("validate", "plan", "package", "cloudformation", "beside", "permissions", "run"),)


def outcomes(zone: Zone, folder: Path, run: bool) -> Iterator[Outcome]:
    """Iterate over what the verbs, and a run, make of the zone on an emulator of its own."""
    importlib.import_module("pipelines.definition")  # changes the environment as it is imported
    boto3.DEFAULT_SESSION = None  # it remembers the keys of another emulator
    control = control_policies(zone.folder / zone.scp if zone.scp else None)
    with serve(folder / "aws", control=control) as endpoint, apply_environment(endpoint.env):
        yield from tried(zone, folder)
        if run:
            began = time.monotonic()
            problem = offline_run.run(zone)
            yield Outcome("run", None, time.monotonic() - began, problem)


def main(
    only: Annotated[str, typer.Option(help="Zones, with commas between them.")] = "",
    number: Annotated[int, typer.Option("--generated", help="Generated zones besides.")] = 30,
    run: Annotated[bool, typer.Option("--run", help="Run them, too: a minute each.")] = False,
    executed: Annotated[int, typer.Option(help="Generated zones that --run runs.")] = 5,
    seed: int = 0,
    json_file: JsonFile = None,
) -> None:
    """Print what became of each verb on each zone."""
    found: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory(prefix="landing-zones-") as place:
        zones = {zone.name: zone for zone in invented()}
        made = generated(Path(place) / "zones", number, seed)
        runs = {*zones, *[zone.name for zone in made if zone.runs][:executed]}
        zones |= {zone.name: zone for zone in made}
        for name in chosen(only, zones):
            folder = Path(place) / name
            folder.mkdir()
            found[name] = list(outcomes(zones[name], folder, run and name in runs))
            for one in found[name]:
                if one.problem:
                    where = f" ({one.environment})" if one.environment else ""
                    print(f"{name}: {one.verb}{where}: {one.problem}", flush=True)
    rows = [_row(zones[name], of) for name, of in found.items()]
    show_table(("zone", "has", *VERBS), rows, "", 200)
    keep(json_file, {name: [asdict(one) for one in of] for name, of in found.items()})
    raise typer.Exit(1 if any(one.problem for of in found.values() for one in of) else 0)


def _row(zone: Zone, found: list[Outcome]) -> list[str]:
    """Return a line of the table: each verb's seconds, over the environments, or that it failed."""
    cells = []
    for verb in VERBS:
        mine = [one for one in found if one.verb == verb]
        seconds = f"{sum(one.seconds for one in mine):.1f} s" if mine else ""
        cells.append("FAILED" if any(one.problem for one in mine) else seconds)
    return [zone.name, zone.has, *cells]


if __name__ == "__main__":
    typer.run(main)
