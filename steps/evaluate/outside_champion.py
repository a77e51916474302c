"""Score a champion that another pipeline made: by a table of its probabilities, or by its script.

A fault here ends the job: the recipe's own input is wrong, not the model that it judges.
"""

import argparse
import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steps.evaluate.champion_input import of_script, of_table, table_in
from steps.evaluate.champion_table import missing, read_table, refuse_classes
from steps.evaluate.evaluation_document import Artifact, ScoredBy
from steps.evaluate.model_folder import evidence, files_of
from steps.evaluate_script.script_process import Script
from training.data.dataset import Dataset
from training.data.example_hashes import sample_hashes
from training.data.manifest import Samples

Record = dict[str, str | float | None]


@dataclass(frozen=True, slots=True)
class OutsideChampion:
    """A champion of another pipeline, and how it is scored."""

    probability: Callable[[Samples], np.ndarray]
    """Samples of the test split, in its order → the probability of the label 1, float64 (n,)."""
    artifact: Artifact | None
    """The model that the script was given; None for a table."""
    scored_by: ScoredBy


def is_champion(options: argparse.Namespace) -> bool:
    """Return whether the champion of this run is the one that the recipe describes."""
    return options.outside is not None and options.outside == options.champion


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the parser accept what the recipe's section ``champion`` says."""
    parser.add_argument("--outside", help="ARN of the model package that it describes")
    parser.add_argument("--outside_script", help="inference script in the input script")
    parser.add_argument("--outside_type", help="MIME type of the script's requests")
    parser.add_argument("--outside_columns", nargs="*", help="columns of a request, in order")


def open_outside(options: argparse.Namespace, workload: Any, test: Dataset) -> OutsideChampion:
    """Open the champion.

    Args:
        workload: one whose spec has ``takes_probabilities``.

    Raises:
        DataError: the table is not one of the test split; the script or its answers are wrong.
    """
    inputs = options.root / "processing/input"
    if options.outside_script is None:
        return _by_table(table_in(inputs), workload, test)
    return _by_script(options, inputs, workload, test)


def _by_table(path: Path, workload: Any, test: Dataset) -> OutsideChampion:
    table = read_table(path, workload.packing)
    found = [table.of(block["example"]) for block in workload.examples(test)]
    lacking = np.isnan(np.concatenate(found))
    if lacking.any():
        raise missing(table, lacking, _record(workload.records(test), int(np.argmax(lacking))))
    fields = workload.packing.fields
    return OutsideChampion(
        lambda samples: table.of(sample_hashes(samples, fields)), None, of_table(path)
    )


def _record(records: Iterator[list[Record]], place: int) -> Record:
    for some in records:
        if place < len(some):
            return {name: value for name, value in some[place].items() if value is not None}
        place -= len(some)
    raise IndexError(place)


def _by_script(
    options: argparse.Namespace, inputs: Path, workload: Any, test: Dataset
) -> OutsideChampion:
    folder = inputs / "champion"
    work = options.root / "processing/work/champion"
    work.mkdir(parents=True, exist_ok=True)
    files = files_of(folder, work / "model")
    requests, answers = work / "requests.jsonl", work / "answers.jsonl"
    with requests.open("w", encoding="utf-8") as file:
        for records in workload.records(test):
            columns = options.outside_columns or list(records[0])
            for request in requests_for(records, options.outside_type, columns):
                print(json.dumps(request), file=file)
    script = Script(inputs / "script", options.outside_script, (), {})
    scored_by = of_script(script.folder, script.entry)
    script.predict(files, requests, options.outside_type, answers)
    lines = answers.read_text(encoding="utf-8").splitlines()
    values = np.array([value for line in lines for value in json.loads(line)], np.float64)
    refuse_classes(f"champion.script: {script.entry}", values)
    return OutsideChampion(_InOrder(values), evidence(folder), scored_by)


def requests_for(
    records: Sequence[Record], content_type: str, columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the requests for some records: JSON takes one each, CSV and JSON Lines take all."""
    rows = [[record[name] for name in columns] for record in records]
    objects = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    if content_type == "application/json":
        yield from ({"rows": 1, "body": body} for body in objects)
    elif content_type == "text/csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)  # None becomes an empty field
        yield {"rows": len(rows), "body": text.getvalue()}
    else:
        yield {"rows": len(rows), "body": "".join(f"{body}\n" for body in objects)}


class _InOrder:
    """Gives out the values of one sample after the other."""

    def __init__(self, values: np.ndarray) -> None:
        self._values, self._place = values, 0

    def __call__(self, samples: Samples) -> np.ndarray:
        begin, self._place = self._place, self._place + len(samples["label"])
        return self._values[begin : self._place]
