"""Landing zones: every pair of settings is generated, and the verbs take a zone as it stands."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from benchmarks.landing_zones.__main__ import outcomes
from benchmarks.landing_zones.generated import AXES, REFUSED, generated, pairs, pairwise
from benchmarks.landing_zones.zones import invented

ZONES = {zone.name: zone for zone in invented()}


def test_thirty_combinations_have_every_pair_and_a_seed_repeats_them():
    rows = pairwise(AXES, 30, 0)
    two = itertools.combinations(AXES.values(), 2)
    every = sum(len(mine) * len(its) for mine, its in two)
    assert len(pairs(rows)) == every - len(REFUSED)
    assert pairwise(AXES, 30, 0) == rows != pairwise(AXES, 30, 1)


def test_a_generated_zone_is_written_as_a_folder_of_settings(tmp_path: Path):
    [zone] = generated(tmp_path, 1, 0)
    assert {path.name for path in zone.folder.iterdir()} == {"recipe.yaml", "zone.yaml"}
    assert "$" not in zone.recipe.read_text()


@pytest.mark.sweep
def test_the_verbs_take_a_zone_as_it_stands(tmp_path: Path):
    found = list(outcomes(ZONES["existing_bucket"], tmp_path, run=False))
    assert [one.problem for one in found] == [""] * 6


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ZONES)
def test_each_invented_zone_runs_to_a_registered_package(name: str, tmp_path: Path):
    found = list(outcomes(ZONES[name], tmp_path, run=True))
    assert {one.verb: one.problem for one in found if one.problem} == {}
    assert found[-1].verb == "run"


@pytest.mark.sweep
def test_the_tag_policy_refuses_what_lacks_its_tag(tmp_path: Path):
    zone = ZONES["tag_policies"]
    bare = dataclasses.replace(zone, offline=("aws.tags={owner: x}",))
    found = {one.verb: one.problem for one in outcomes(bare, tmp_path, run=True) if one.problem}
    assert found.keys() == {"run"}
    assert "explicit deny in a service control policy (statement CostCenter" in found["run"]
