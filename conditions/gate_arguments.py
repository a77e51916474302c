"""Arguments of the gate's job: built from the recipe's values, and parsed to ``Demands``.

Both directions derive from the fields of the table. It does not import the SDK, because an approval
also computes the arguments, from the recipe in a model's record.
"""

import argparse
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conditions.check_table import (
    SETTINGS,
    Demands,
    Field,
    Values,
    list_fields,
    select_declared_checks,
)
from conditions.gate_check import Direction
from conditions.no_champion import UNRESOLVED_ARN
from trainyard.common.errors import GateError

BOUNDS: dict[str, Direction] = {"max": "lower", "min": "higher"}


def build_arguments(
    values: Values,
    *,
    primary_metric: str,
    directions: Mapping[str, str],
    champion: Any,
    look_number: Any,
) -> list[Any]:
    """Return the gate job's command-line arguments, which may contain pipeline variables.

    Each demand has its own short arguments, because the service accepts 100 arguments of 256
    characters each.

    Args:
        values: values of all fields, by name. ``threshold`` maps each name to its placeholder.
        directions: better values of each metric, ``lower`` or ``higher``.
        champion: ARN of the model package to compare with, or ``none``, or ``unresolved``.
        look_number: number of this comparison in the ledger (``pipelines.registry.ledger``), or 0
            if unknown. It is passed only to a gate that compares with a champion.
    """
    asked_checks = select_declared_checks(values)
    own_fields = [
        field for check in asked_checks if "champion" not in check.needs for field in check.fields
    ]
    champion_fields = [
        field for check in asked_checks if "champion" in check.needs for field in check.fields
    ]
    margins = [field for field in champion_fields if field.form == "margins"]
    words = ["--primary_metric", primary_metric, "--direction", directions[primary_metric]]
    words += _format_arguments([*own_fields, *margins], values, directions)
    if any("scores" in check.needs for check in asked_checks):
        others = [field for field in champion_fields if field.form != "margins"]
        words += _format_arguments([*SETTINGS, *others], values, directions)
        words += ["--champion", champion]
    words += ["--look", look_number] if any(check.margins for check in asked_checks) else []
    return words


def _format_arguments(
    chosen_fields: Iterable[Field], values: Values, directions: Mapping[str, str]
) -> list[Any]:
    """Return the command-line arguments that pass the values of ``chosen_fields`` to the job."""
    words: list[Any] = []
    for field in chosen_fields:
        name, value = f"--{field.name}", values[field.name]
        if field.form == "thresholds":
            words += [
                word for bound, threshold in value.items() for word in (name, bound, threshold)
            ]
        elif field.form == "margins":
            words += [
                word
                for metric, margin in value.items()
                for word in (name, metric, directions[metric], str(margin))
            ]
        elif value is not None:
            words += [name, str(value)]
    return words


def build_parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the gate job's command-line arguments."""
    argument_parser = argparse.ArgumentParser(description=description)
    argument_parser.add_argument("--primary_metric", required=True)
    argument_parser.add_argument("--direction", choices=("lower", "higher"), required=True)
    several = {"margins": ("METRIC", "DIRECTION", "MARGIN"), "thresholds": ("NAME", "VALUE")}
    for field in list_fields():
        how: dict[str, Any] = {"type": field.value_type, "default": field.default}
        if words := several.get(field.form):
            how = {"nargs": len(words), "action": "append", "default": [], "metavar": words}
        argument_parser.add_argument(f"--{field.name}", help=field.doc.replace("%", "%%"), **how)
    argument_parser.add_argument(
        "--champion",
        default=UNRESOLVED_ARN,
        help="ARN of the model package to compare with, or none",
    )
    argument_parser.add_argument(
        "--look", type=int, default=0, help="number of the look; 0: not counted"
    )
    argument_parser.add_argument(
        "--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS
    )
    return argument_parser


def build_demands(options: argparse.Namespace) -> Demands:
    """Return the gate's demands, taken from the parsed arguments of its job.

    Raises:
        GateError: a threshold is not ``max_<metric>`` or ``min_<metric>`` with a finite number, or
            a comparison's direction or margin is invalid.
    """
    parsers = {
        "margins": _parse_margins,
        "thresholds": _parse_thresholds,
        "value": lambda field, value: value,
    }
    option_values = {field.name: getattr(options, field.name) for field in list_fields()}
    triples = [
        t for field in list_fields() if field.form == "margins" for t in option_values[field.name]
    ]
    return Demands(
        values={
            field.name: parsers[field.form](field, option_values[field.name])
            for field in list_fields()
        },
        directions={options.primary_metric: options.direction} | {m: d for m, d, _ in triples},
        primary_metric=options.primary_metric,
        champion=options.champion,
        look_number=options.look,
    )


def _parse_thresholds(field: Field, pairs: list[list[str]]) -> dict[str, float]:
    """Parse (name, value) pairs; return the thresholds by name."""
    thresholds = {}
    for name, text in pairs:
        bound, _, metric = name.partition("_")
        thresholds[name] = _parse_number(text)
        if bound not in BOUNDS or not metric or not math.isfinite(thresholds[name]):
            raise GateError(
                f"--{field.name} {name} {text}: expected max_<metric> or min_<metric>, and a "
                "finite number"
            )
    return thresholds


def _parse_margins(field: Field, triples: list[list[str]]) -> dict[str, float]:
    """Parse (metric, direction, margin) triples; return the margins by metric."""
    margins = {}
    for metric, direction, text in triples:
        margins[metric] = _parse_number(text)
        if direction not in BOUNDS.values() or not 0 <= margins[metric] < math.inf:
            raise GateError(
                f"--{field.name} {metric} {direction} {text}: expected a metric, lower or higher, "
                "and a margin of at least 0"
            )
    return margins


def _parse_number(text: str) -> float:
    """Return the number, or NaN if the text is not one."""
    try:
        return float(text)
    except ValueError:
        return math.nan
