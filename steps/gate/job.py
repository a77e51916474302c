"""Turn the evaluation into a verdict; a rejection is a result, so it exits with 0 too.

python steps/gate/job.py --primary_metric bits_per_byte --direction lower \\
    --threshold max_bits_per_byte 2.6 [--below_baseline bigram --baseline_margin 0.1]
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from conditions import provenance
from conditions.checks import Check, against_baseline, against_threshold
from conditions.verdict import verdict
from errors import GateError
from steps.edge import run

BOUNDS = {"max": "lower", "min": "higher"}


def gate(options: argparse.Namespace) -> None:
    """Read evaluation.json, write gate.json."""
    evaluation = read_evaluation(options.root / "processing/input/evaluation/evaluation.json")
    result = verdict(evaluation, checks(evaluation, options))
    output = options.root / "processing/output/gate/gate.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(".gate.json.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(result, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(output)
    provenance.write(options.root, result)
    print(f"{result['verdict']}: {result['reason']}", flush=True)


def read_evaluation(path: Path) -> Any:
    """The evaluation; None, which rejects, when it is missing or no JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        print(f"{path}: {error}", flush=True)
        return None


def checks(evaluation: Any, options: argparse.Namespace) -> list[Check]:
    """The checks that the arguments ask for, in their order.

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
    return found


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
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: gate(options), options.root / "output/message")


if __name__ == "__main__":
    main()
