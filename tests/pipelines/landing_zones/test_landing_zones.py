"""Landing zones: the verbs take each as it stands, and it runs offline to a registered package.

A zone is a folder of settings beside this checkout, of which no file is edited. On each of its
environments: validate, plan, package, infra (cfn-lint has nothing to say), what lies beside the
pipeline (storage, messages, the three CIs, linted as well), and permissions compared with that
template. Then it is deployed as its company does it (upsert, CloudFormation, Terraform's stack) on
an emulator with its SCP and boundary, where the derived roles are held to their policies, and runs
to a registered package with all tags. Generated zones are pairwise combinations of settings.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.pipelines.landing_zones import offline_run
from tests.pipelines.landing_zones.verbs import verbs
from tests.pipelines.landing_zones.zones import (
    AXES,
    REFUSED,
    Zone,
    generate_zones,
    list_invented_zones,
    pairs,
    pairwise,
)
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.server import serve_emulator
from trainyard.permissions.policy_documents import read_control_policies

pytestmark = pytest.mark.sweep
ZONES = {zone.name: zone for zone in list_invented_zones()}
GENERATED, RUN = 30, 5
"""Generated zones, and how many of them are run, too."""


def problems(zone: Zone, folder: Path, run: bool) -> Iterator[str]:
    """Yield what is wrong of the verbs, and of a run, of the zone on an emulator of its own."""
    import pipelines.definition  # noqa: F401 - changes the environment as it is imported

    boto3.DEFAULT_SESSION = None  # it remembers the keys of another emulator
    control = read_control_policies(zone.folder / zone.scp if zone.scp else None)
    with (
        serve_emulator(folder / "aws", control=control) as endpoint,
        apply_environment(endpoint.env),
    ):
        for environment in zone.environments or (None,):
            for verb, act in verbs(zone, environment, folder).items():
                if wrong := act():
                    yield f"{verb} ({environment}): {wrong}"
        if run and (wrong := offline_run.run(zone)):
            yield f"run: {wrong}"


@pytest.fixture(scope="module")
def generated_zones(tmp_path_factory) -> list[Zone]:
    return generate_zones(tmp_path_factory.mktemp("zones"), GENERATED, 0)


def test_thirty_combinations_have_every_pair_and_a_seed_repeats_them():
    rows = pairwise(AXES, 30, 0)
    two = itertools.combinations(AXES.values(), 2)
    every = sum(len(mine) * len(its) for mine, its in two)
    assert len(pairs(rows)) == every - len(REFUSED)
    assert pairwise(AXES, 30, 0) == rows != pairwise(AXES, 30, 1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ZONES)
def test_an_invented_zone_runs_to_a_registered_package(name: str, tmp_path: Path):
    assert list(problems(ZONES[name], tmp_path, run=True)) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(GENERATED))
def test_the_verbs_take_a_generated_zone_as_it_stands(number: int, generated_zones, tmp_path: Path):
    zone = generated_zones[number]
    run = zone in [one for one in generated_zones if one.runs][:RUN]
    assert list(problems(zone, tmp_path, run)) == [], zone.has


def test_the_tag_policy_refuses_what_lacks_its_tag(tmp_path: Path):
    bare = dataclasses.replace(ZONES["tag_policies"], offline=("aws.tags={owner: x}",))
    [wrong] = problems(bare, tmp_path, run=True)
    assert wrong.startswith("run: ")
    assert "explicit deny in a service control policy (statement CostCenter" in wrong
