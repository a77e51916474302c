"""Arguments of the gate's job: from the recipe's values, and back to demands.

Both derive from the fields of the table. Without the SDK: an approval computes the arguments again
from the recipe in a model's record.
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conditions.check_table import SETTINGS, Field, Values, declared, fields
from conditions.demands import Demands
from conditions.gate_check import Direction
from conditions.no_champion import UNRESOLVED
from trainyard.common.errors import GateError

BOUNDS: dict[str, Direction] = {"max": "lower", "min": "higher"}


def arguments(
    values: Values,
    *,
    primary_metric: str,
    directions: Mapping[str, str],
    champion: Any,
    look: Any,
    models: Sequence[Any] = (),
) -> list[Any]:
    """Return the job's arguments in order; a pipeline's variables may stand among them.

    Each demand has its own short arguments: the service takes 100 of 256 characters each.

    Args:
        values: field → value, of all fields; for ``threshold``: name → its placeholder.
        directions: metric → better values, ``lower`` or ``higher``.
        champion: ARN of the model package to compare with, ``none`` or ``unresolved``.
        look: the number of this comparison in the ledger (``pipelines.registry.ledger``), 0 for
            unknown; passed only to a gate that compares.
        models: S3 URIs of the model and of its int8 version, where there is one.
    """
    asked = declared(values)
    alone = [given for check in asked if "champion" not in check.needs for given in check.fields]
    against = [given for check in asked if "champion" in check.needs for given in check.fields]
    margins = [given for given in against if given.form == "margins"]
    found = ["--primary_metric", primary_metric, "--direction", directions[primary_metric]]
    found += _words([*alone, *margins], values, directions)
    if any("scores" in check.needs for check in asked):
        others = [given for given in against if given.form != "margins"]
        found += _words([*SETTINGS, *others], values, directions)
        found += ["--champion", champion]
    found += ["--look", look] if any(check.margins for check in asked) else []
    return [*found, "--models", *models] if models else found


def _words(chosen: Iterable[Field], values: Values, directions: Mapping[str, str]) -> list[Any]:
    return [word for one in chosen for word in _field_words(one, values[one.name], directions)]


def _field_words(given: Field, value: Any, directions: Mapping[str, str]) -> list[Any]:
    name = f"--{given.name}"
    if given.form == "thresholds":
        return [word for bound, threshold in value.items() for word in (name, bound, threshold)]
    if given.form == "margins":
        return [
            word
            for metric, margin in value.items()
            for word in (name, metric, directions[metric], str(margin))
        ]
    return [] if value is None else [name, str(value)]


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--primary_metric", required=True)
    found.add_argument("--direction", choices=("lower", "higher"), required=True)
    several = {"margins": ("METRIC", "DIRECTION", "MARGIN"), "thresholds": ("NAME", "VALUE")}
    for given in fields():
        how: dict[str, Any] = {"type": given.of, "default": given.default}
        if words := several.get(given.form):
            how = {"nargs": len(words), "action": "append", "default": [], "metavar": words}
        found.add_argument(f"--{given.name}", help=given.doc.replace("%", "%%"), **how)
    found.add_argument(
        "--champion", default=UNRESOLVED, help="ARN of the model package to compare with, or none"
    )
    found.add_argument("--models", nargs=2, metavar=("FULL", "INT8"), help="their S3 URIs")
    found.add_argument("--look", type=int, default=0, help="number of the look; 0: not counted")
    found.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return found


def demands(options: argparse.Namespace) -> Demands:
    """Return the demands in the parsed arguments.

    Raises:
        GateError: a threshold is neither ``max_<metric>`` nor ``min_<metric>`` with a number, or a
            comparison's direction or margin is invalid.
    """
    read = {"margins": _margins, "thresholds": _thresholds, "value": lambda given, value: value}
    found = {given.name: getattr(options, given.name) for given in fields()}
    triples = [t for given in fields() if given.form == "margins" for t in found[given.name]]
    return Demands(
        values={given.name: read[given.form](given, found[given.name]) for given in fields()},
        directions={options.primary_metric: options.direction} | {m: d for m, d, _ in triples},
        primary_metric=options.primary_metric,
        champion=options.champion,
        look=options.look,
    )


def _thresholds(given: Field, pairs: list[list[str]]) -> dict[str, float]:
    found = {}
    for name, text in pairs:
        bound, _, metric = name.partition("_")
        found[name] = _number(text)
        if bound not in BOUNDS or not metric or not math.isfinite(found[name]):
            raise GateError(
                f"--{given.name} {name} {text}: expected max_<metric> or min_<metric>, and a "
                "finite number"
            )
    return found


def _margins(given: Field, triples: list[list[str]]) -> dict[str, float]:
    found = {}
    for metric, direction, text in triples:
        found[metric] = _number(text)
        if direction not in BOUNDS.values() or not 0 <= found[metric] < math.inf:
            raise GateError(
                f"--{given.name} {metric} {direction} {text}: expected a metric, lower or higher, "
                "and a margin of at least 0"
            )
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
