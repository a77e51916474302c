"""Score records by a trained model, as an endpoint of it would answer.

python -m steps.transform.job [--keep NAME …] [--max_bad_share 0.01]

Every record that goes in comes out, either in ``scores`` with its answer, or in ``quarantine`` with
the reason. A file appears when it is whole, and the summary last.
"""

import argparse
import json
import logging
import sys
from pathlib import Path

from steps.evaluate.model_folder import evidence, files_of
from steps.job_arguments import parse_typed
from steps.job_main import run
from steps.shard import instances as job_instances
from steps.shard import raw_objects
from steps.shard.quarantine import check_share
from steps.shard.readers import refuse_unknown
from steps.transform.scored_object import Scoring
from steps.transform.settings import TransformSettings
from training.cpu_cores import fit_threads
from training.export.request_handler import open_served
from training.starting_weights import BASE
from trainyard.common import atomic_file
from trainyard.common.errors import DataError
from trainyard.common.hashes import json_sha256

log = logging.getLogger(__name__)


def transform(options: argparse.Namespace) -> None:
    """Score every file; write the summary last.

    Raises:
        DataError: no file, one that cannot be read, or too many bad records.
    """
    fit_threads()
    inputs, instances = options.root / "processing/input", job_instances.read(options.root)
    scoring = _scoring(options)
    objects = raw_objects.find(inputs / "records", json_sha256([*scoring.columns]))
    refuse_unknown(raw.name for raw in objects if not raw.files)
    if not objects and len(instances.hosts) == 1:
        raise DataError("0 files in the records; upload some under transform.input")
    counts = []
    for raw in objects:
        counts.append(result := scoring.score(raw))
        log.info("%s: %d records, %d of them bad", raw.name, result.records, result.quarantined)
    check_share(counts, options.max_bad_share, "transform.max_bad_share")
    records, bad = (sum(getattr(c, n) for c in counts) for n in ("records", "quarantined"))
    summary = {"records": records, "scored": records - bad, "quarantined": bad}
    summary["objects"] = {
        raw.name: {"records": result.records, "quarantined": result.quarantined}
        | {path.parent.name: path.name for path in scoring.files(raw) if path.exists()}
        for raw, result in sorted(zip(objects, counts, strict=True), key=lambda pair: pair[0].name)
    }
    model = options.root / "processing/input/model"
    summary["model_sha256"] = evidence(model)["sha256"]
    path = scoring.output / f"quarantine/summary-{instances.host}.json"
    atomic_file.write(path, json.dumps(summary, indent=1))


def _scoring(options: argparse.Namespace) -> Scoring:
    inputs, output = options.root / "processing/input", options.root / "processing/output"
    for folder in ("scores", "quarantine"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    base = inputs / BASE if (inputs / BASE).is_dir() else None
    served_model = open_served(files_of(inputs / "model", options.root / "unpacked"), base)
    workload = served_model.workload
    if not hasattr(workload, "request"):
        name = type(workload).__module__.rpartition(".")[0]
        raise DataError(f"workload {name} asks for no record: give its Workload a request()")
    return Scoring(
        served_model=served_model,
        columns=workload.request_columns,
        keep=options.keep,
        output=output,
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parse_typed(parser, arguments, TransformSettings)


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: transform(options), options.root / "output/message")


if __name__ == "__main__":
    main()
