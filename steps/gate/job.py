"""Turn the evaluation into a verdict; a rejection is a result, so it exits with 0 too.

python steps/gate/job.py --primary_metric bits_per_byte --direction lower \\
    --threshold max_bits_per_byte 2.6 [--below_baseline bigram --baseline_margin 0.1] \\
    [--non_inferiority bits_per_byte lower 0.01 --champion arn:aws:sagemaker:…] [...]

Every demand is an argument, and all evidence lies in the inputs ``evaluation`` and ``scores``.
Where no demand needs the scores of single examples, nothing beyond Python is imported.
"""

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conditions import provenance
from conditions.budgets import (
    within_latency,
    within_size,
    without_leakage,
    without_near_duplicates,
)
from conditions.checks import Check, against_baseline, against_threshold
from conditions.demands import UNRESOLVED, Demands
from conditions.verdict import verdict
from steps.edge import run
from trainyard.common import whole_file
from trainyard.common.errors import GateError

BOUNDS = {"max": "lower", "min": "higher"}
BUDGETS = {
    "max_leaked_examples": (float, None),
    "max_leaked_groups": (float, None),
    "max_near_duplicates": (float, None),
    "max_latency_p95_ms": (float, None),
    "max_artifact_mb": (float, None),
}
"""Argument → type and default; steps/gate/config.py says what each means."""
SETTINGS = {
    "min_examples": (int, None),
    "max_calibration_error": (float, None),
    "max_group_influence": (float, None),
    "confidence": (float, 0.95),
    "power": (float, 0.8),
    "min_groups": (int, 20),
    "min_slice_examples": (int, 100),
    "min_slice_groups": (int, 10),
    "cold_start": (str, "pass"),
    "look": (int, 0),
}
COMPARISONS = ("non_inferiority", "superiority", "slice_regression", "smallest_effect")


def gate(options: argparse.Namespace) -> None:
    """Read the evaluation and the scores, write gate.json."""
    result = judge(options)
    output = options.root / "processing/output/gate/gate.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(output, json.dumps(result, indent=1, allow_nan=False))
    provenance.write(options.root, result)
    print(f"{result['verdict']}: {result['reason']}", flush=True)


def judge(options: argparse.Namespace) -> dict[str, Any]:
    """What gate.json holds."""
    inputs = options.root / "processing/input"
    evaluation = read_evaluation(inputs / "evaluation/evaluation.json")
    found, demanded = checks(evaluation, options), demands(options)
    if not demanded.any:
        return verdict(evaluation, found)
    from conditions import score_checks  # numpy, pyarrow and SciPy: not where nothing needs them

    of_scores = score_checks.judge(inputs / "scores", evaluation, demanded, options.champion)
    return verdict(
        evaluation,
        [*found, *of_scores.checks],
        champion=options.champion,
        cold_start=options.cold_start,
        look=options.look,
        confidence=options.confidence,
        examples=of_scores.examples,
        groups=of_scores.groups,
        slices=[asdict(part) for part in of_scores.slices],
        champion_artifact_sha256=of_scores.champion_artifact_sha256,
    )


def read_evaluation(path: Path) -> Any:
    """The evaluation; None, which rejects, when it is missing or no JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        print(f"{path}: {error}", flush=True)
        return None


def checks(evaluation: Any, options: argparse.Namespace) -> list[Check]:
    """The checks of evaluation.json alone that the arguments ask for.

    Raises:
        GateError: a threshold is neither ``max_<metric>`` nor ``min_<metric>`` with a number.
    """
    found = []
    for name, text in options.threshold:
        bound, _, metric = name.partition("_")
        try:
            threshold = float(text)
        except ValueError:
            threshold = float("nan")
        if bound not in BOUNDS or not metric or not math.isfinite(threshold):
            raise GateError(
                f"--threshold {name} {text}: expected max_<metric> or min_<metric>, and a finite "
                "number"
            )
        found.append(against_threshold(evaluation, metric, BOUNDS[bound], threshold))
    if options.below_baseline:
        found.append(
            against_baseline(
                evaluation,
                options.primary_metric,
                options.direction,
                options.below_baseline,
                options.baseline_margin,
            )
        )
    return found + _budgets(evaluation, options)


def _budgets(evaluation: Any, options: argparse.Namespace) -> list[Check]:
    found = []
    for what in ("examples", "groups"):
        allowed = getattr(options, f"max_leaked_{what}")
        if allowed is not None:
            found.append(without_leakage(evaluation, what, allowed))
    if options.max_near_duplicates is not None:
        found.append(without_near_duplicates(evaluation, options.max_near_duplicates))
    if options.max_latency_p95_ms is not None:
        found.append(within_latency(evaluation, options.max_latency_p95_ms))
    if options.max_artifact_mb is not None:
        found.append(within_size(evaluation, options.max_artifact_mb))
    return found


def demands(options: argparse.Namespace) -> Demands:
    """What the arguments demand of the scores.

    Raises:
        GateError: a comparison's direction or margin is none.
    """
    given = {kind: _margins(kind, getattr(options, kind)) for kind in COMPARISONS}
    directions = {metric: d for kind in COMPARISONS for metric, d, _ in getattr(options, kind)}
    settings = {name: getattr(options, name) for name in SETTINGS}
    return Demands(directions=directions, **given, **settings)


def _margins(kind: str, triples: list[list[str]]) -> dict[str, float]:
    margins = {}
    for metric, direction, text in triples:
        try:
            margins[metric] = float(text)
        except ValueError:
            margins[metric] = math.nan
        if direction not in BOUNDS.values() or not 0 <= margins[metric] < math.inf:
            raise GateError(
                f"--{kind} {metric} {direction} {text}: expected a metric, lower or higher, and a "
                "margin of at least 0"
            )
    return margins


def parse(arguments: list[str]) -> argparse.Namespace:
    """The job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--primary_metric", required=True)
    parser.add_argument("--direction", choices=("lower", "higher"), required=True)
    parser.add_argument(
        "--threshold", nargs=2, action="append", default=[], metavar=("NAME", "VALUE")
    )
    parser.add_argument("--below_baseline", help="baseline that the primary metric must beat")
    parser.add_argument("--baseline_margin", type=float, default=0.0)
    for kind in COMPARISONS:
        parser.add_argument(
            f"--{kind}",
            nargs=3,
            action="append",
            default=[],
            metavar=("METRIC", "DIRECTION", "MARGIN"),
        )
    for name, (kind, default) in (BUDGETS | SETTINGS).items():
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument(
        "--champion", default=UNRESOLVED, help="ARN of the model package to compare with, or none"
    )
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: gate(options), options.root / "output/message")


if __name__ == "__main__":
    main()
