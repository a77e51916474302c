r"""Turn the evaluation into a verdict; a rejection is also a result, so the exit status is 0.

python steps/gate/job.py --primary_metric bits_per_byte --direction lower \
    --threshold max_bits_per_byte 2.6 [--below_baseline bigram --baseline_margin 0.1] \
    [--non_inferiority bits_per_byte lower 0.01 --champion arn:aws:sagemaker:…] [...]

Every requirement is an argument, and all evidence is in the inputs ``evaluation`` and ``scores``.
If no requirement needs the scores of single examples, only the standard library is imported.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conditions import gate_documents
from conditions.check_table import select_demanded_checks
from conditions.gate_arguments import build_demands, build_parser
from conditions.gate_documents import Evidence, Gate
from conditions.verdict import decide_verdict
from steps.job_main import run
from trainyard.common import atomic_file


def run_gate(options: argparse.Namespace) -> None:
    """Judge the evaluation and the scores, and write gate.json and the record."""
    result = judge_evaluation(options)
    output = options.root / "processing/output/gate/gate.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_file(output, json.dumps(result, indent=1, allow_nan=False))
    gate_documents.write_provenance(options.root, result)
    print(f"{result['verdict']}: {result['reason']}", flush=True)


def judge_evaluation(options: argparse.Namespace) -> Gate:
    """Return the content of gate.json.

    Raises:
        GateError: a requirement in the arguments is invalid, or missing.
    """
    inputs, gate_demands = options.root / "processing/input", build_demands(options)
    evaluation = read_evaluation(inputs / "evaluation/evaluation.json")
    evidence = Evidence(evaluation=evaluation)
    checks = select_demanded_checks(gate_demands)
    plain_checks = [check for check in checks if "scores" not in check.needs]
    rows = [row for check in plain_checks for row in check.compute_rows(evidence, gate_demands)]
    if len(plain_checks) == len(checks):
        return decide_verdict(evaluation, rows)
    from conditions import score_checks  # imports numpy, pyarrow and SciPy, so only if needed

    results = score_checks.run_score_checks(inputs / "scores", evaluation, gate_demands)
    return decide_verdict(
        evaluation,
        [*rows, *results.checks],
        champion=gate_demands.champion,
        cold_start=gate_demands["cold_start"],
        look=gate_demands.look_number,
        confidence=gate_demands["confidence"],
        examples=results.examples,
        groups=results.groups,
        slices=[asdict(part) for part in results.slices],
        champion_artifact_sha256=results.champion_artifact_sha256,
    )


def read_evaluation(path: Path) -> Any:
    """Return the content of evaluation.json; None, a reason to reject, if missing or not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        print(f"{path}: {error}", flush=True)
        return None


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments."""
    return build_parser(__doc__).parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    run(lambda: run_gate(options), options.root / "output/message")


if __name__ == "__main__":
    main()
