"""``python -m trainyard.quality.job``: implement ``sagemaker-model-monitor-analyzer``'s contract.

It reads these environment variables, as in the developer guide ("Container Contract Inputs") and as
the SDK sets them: dataset_format, dataset_source, output_path; analysis_type MODEL_QUALITY with
problem_type and *_attribute; baseline_constraints and baseline_statistics if there is a baseline to
compare with.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.quality import constraints, model_quality
from trainyard.quality.model_quality import DataError, read_tables


def run(environment: Mapping[str, str]) -> list[dict[str, str]] | None:
    """Write statistics.json and constraints.json, and constraint_violations.json if there is a
    baseline.

    Return the violations; None if the environment names no baseline constraints.

    Raises:
        DataError: a variable is missing or invalid, or the data cannot be read.
    """
    source = Path(_get_variable(environment, "dataset_source"))
    output = Path(_get_variable(environment, "output_path"))
    output.mkdir(parents=True, exist_ok=True)
    table = read_tables(
        source, _parse_json_object(_get_variable(environment, "dataset_format"), "dataset_format")
    )
    print(f"{source}: {table.rows} rows, {len(table.columns)} columns", flush=True)
    limits, earlier = (
        _read_baseline_json(environment, f"baseline_{n}") for n in ("constraints", "statistics")
    )
    if environment.get("analysis_type") == "MODEL_QUALITY":
        columns = {n: v for n, v in environment.items() if n.endswith("_attribute")}
        result = model_quality.describe_predictions(
            table, environment.get("problem_type", ""), columns
        )
        suggestion = model_quality.suggest_metric_constraints(result)
        broken = model_quality.find_violations(result, limits) if limits else None
    else:
        result = constraints.describe_data(table)
        for name, number in constraints.iter_undescribed_columns(result):
            print(
                f"{name}: {number} distinct values, more than {constraints.CATEGORIES}: their "
                "distribution is not written, and its drift is not checked",
                flush=True,
            )
        suggestion = constraints.suggest_constraints(result)
        broken = constraints.find_violations(table, result, limits, earlier) if limits else None
    _write_json(output / "statistics.json", result)
    _write_json(output / "constraints.json", suggestion)
    if broken is not None:
        _write_json(output / "constraint_violations.json", {"violations": broken})
    return broken


def _get_variable(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise DataError(f"the environment has no {name}")
    return environment[name]


def _parse_json_object(text: str, name: str) -> dict[str, Any]:
    """Parse a JSON object; raise a DataError about ``name`` if the text is not one."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DataError(f"{name} is {text[:50]}: a JSON object is expected")
    return document


def _read_baseline_json(environment: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """Return the JSON in the file, or in the only file of the folder, that a variable names.

    Return None if the variable is not set.

    Raises:
        DataError: the folder does not have exactly one file, or the file is not a JSON object.
    """
    if not (text := environment.get(name)):
        return None
    path = Path(text)
    # SageMaker puts the object of an input into a folder.
    files = [path] if path.is_file() else sorted(p for p in path.glob("*") if p.is_file())
    if len(files) != 1:
        raise DataError(f"{name}: {path} contains {len(files)} files; one is expected")
    return _parse_json_object(files[0].read_text(), str(files[0]))


def _write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document as indented JSON."""
    path.write_text(json.dumps(document, indent=2))


def main() -> int:
    """Run the analysis, print the violations, and return the exit status.

    On invalid data it is 1, and the error is also written to ``output/message``, from where
    SageMaker takes the job's exit message.
    """
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) / "output"
    base.mkdir(parents=True, exist_ok=True)
    try:
        broken = run(os.environ)
    except DataError as error:
        (base / "message").write_text(f"Error: {error}")
        print(f"Error: {error}", flush=True)
        return 1
    for violation in broken or ():
        print(json.dumps(violation), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
