"""Landing zones: invented ones, a folder each, and pairwise combinations of settings, seeded."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal

import yaml

from pipelines.recipe.extended_recipe import overlay_tree
from trainyard.emulator.request_scope import ACCOUNT

HERE = Path(__file__).parent
RECIPE, ZONE = "recipe.yaml", "zone.yaml"
Deploy = Literal["upsert", "cloudformation", "terraform"]


@dataclass(frozen=True, kw_only=True)
class Zone:
    """A company's account and its habits, as settings."""

    folder: Path
    has: str  # what is particular about it
    deploy: Deploy = "upsert"  # who deploys the pipeline in an offline run
    environments: tuple[str, ...] = ()
    boundary: str | None = None  # ARN of the permissions boundary that each of its roles gets
    scp: str | None = None  # file of its service control policies
    infra: tuple[
        str, ...
    ] = ()  # of infra: --no-roles, where jobs and pipeline share one; --no-group
    runs: bool = True  # whether the emulator can run it
    offline: tuple[str, ...] = ()  # settings of what asks the emulator, which has one account only

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def one_role(self) -> bool:
        """Whether jobs and pipeline share a role, for which no template can be derived."""
        return "--no-roles" in self.infra

    @property
    def recipe(self) -> Path:
        return self.folder / RECIPE


def read(folder: Path) -> Zone:
    given: dict[str, Any] = yaml.safe_load((folder / ZONE).read_text(encoding="utf-8"))
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    return Zone(folder=folder, **given | lists)


def list_invented_zones() -> list[Zone]:
    """Return the zones of this folder, by name."""
    return [read(path.parent) for path in sorted(HERE.glob(f"zones/*/{ZONE}"))]


def write_zone(folder: Path, recipe: dict[str, Any], about: dict[str, Any]) -> Zone:
    """Write a zone into a new folder, and read it."""
    folder.mkdir(parents=True)
    (folder / RECIPE).write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    (folder / ZONE).write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    return read(folder)


REGIONS = {"us-east-1": ("aws", "amazonaws.com"), "eu-central-1": ("aws", "amazonaws.com"),
           "us-gov-west-1": ("aws-us-gov", "amazonaws.com"),
           "cn-north-1": ("aws-cn", "amazonaws.com.cn")}  # fmt: skip
"""Region → partition, and the suffix of its registries."""
SETTINGS = (HERE / "settings.yaml").read_text(encoding="utf-8")
AXES = {name: list(values) for name, values in yaml.safe_load(SETTINGS).items()}
"""Setting → its values."""
REFUSED = {(("network", "FSx"), ("work", "script")), (("network", "FSx"), ("machines", "fallback"))}
"""Pairs that no recipe can have, which validate says."""
Row = dict[str, str]


def pairs(rows: Sequence[Row]) -> set[tuple[tuple[str, str], ...]]:
    """Return the pairs of two settings' values that occur together."""
    return {pair for row in rows for pair in itertools.combinations(row.items(), 2)}


def pairwise(axes: Mapping[str, Sequence[str]], number: int, seed: int) -> list[Row]:
    """Return so many combinations, which together have as many pairs as a greedy choice finds.

    Each begins with a pair that no earlier one has; every further setting gets the value that adds
    the most such pairs.
    """
    draw = random.Random(seed)
    both = itertools.combinations(axes.items(), 2)
    missing = {((a, v), (b, w)) for (a, mine), (b, its) in both for v in mine for w in its}
    missing -= REFUSED
    rows: list[Row] = []
    for _ in range(number):
        row = dict(draw.choice(sorted(missing))) if missing else {}
        for name in draw.sample(sorted(axes), len(axes)):
            if name not in row:
                values = draw.sample(list(axes[name]), len(axes[name]))
                row[name] = max(values, key=lambda v: _adds(missing, row, (name, v)))
        rows.append({name: row[name] for name in axes})
        missing -= pairs(rows[-1:])
    return rows


def _adds(missing: set, row: Row, value: tuple[str, str]) -> int:
    """Return how many missing pairs a value makes with those of a combination; -1 if it may not."""
    made = {pair for one in row.items() for pair in ((value, one), (one, value))}
    return -1 if REFUSED & made else len(missing & made)


def generate_zones(folder: Path, number: int, seed: int) -> list[Zone]:
    """Write so many generated zones into the folder."""
    rows = pairwise(AXES, number, seed)
    return [_write_row_zone(folder / f"generated-{n:02}", row) for n, row in enumerate(rows)]


def _write_row_zone(folder: Path, row: Row) -> Zone:
    region, (partition, suffix) = row["region"], REGIONS[row["region"]]
    text = Template(SETTINGS).substitute(
        {"ACCOUNT": ACCOUNT, "REGION": region, "PARTITION": partition, "SUFFIX": suffix}
        | {"TESTS": HERE.parents[1] / "somebodys"}
    )
    parts = yaml.safe_load(text)
    tree: dict[str, Any] = {"pipeline": {"name": "zone"}, "aws": {"bucket": "zone-ml"}}
    for name, value in row.items():
        tree = overlay_tree(tree, parts[name][value])
    if region != "us-east-1" and "environments" in tree:  # no prices of others are shipped
        del tree["environments"]["prod"]["budget"]
    if row["work"] != "script":
        tree = {"extends": str(HERE / "small.yaml")} | tree
    return write_zone(folder, tree, _about(row, partition, parts))


def _about(row: Row, partition: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the benchmark has to know of the zone."""
    told = {name: value for name, value in row.items() if value != AXES[name][0]}
    own = parts["group"]["ARN"]["register"]["model_package_group"]
    # China's CloudFormation makes no model package groups.
    without = {"--no-roles": row["roles"] == "one", "--no-group": partition == "aws-cn"}
    return {
        "has": ", ".join(f"{name} {value}" for name, value in told.items()),
        "environments": ["dev", "prod"] if row["environments"] == "two" else [],
        "infra": [option for option, needed in without.items() if needed],
        "offline": [f"register.model_package_group={own}"] if row["group"] == "tools" else [],
        "runs": partition == "aws" and row["network"] != "FSx" and row["images"] != "own",
    }
