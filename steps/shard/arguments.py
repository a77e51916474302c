"""Parse the job's arguments, derive the plan from them, and check them against the raw data."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from steps.job_arguments import parse_typed_arguments
from steps.shard.raw_objects import RawObject
from steps.shard.settings import ShardSettings
from steps.shard.shard_plan import Plan
from steps.shard.survey import Survey
from training.workloads import parse_settings
from trainyard.common.errors import DataError
from trainyard.common.process import count_cores

PATIENCE = 1800
"""Seconds that the first of several instances waits for the others, and the others for it."""


def parse_arguments(arguments: list[str], description: str | None = None) -> argparse.Namespace:
    """Parse the job's arguments."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", required=True)
    parser.add_argument(
        "--workload_config",
        nargs="+",
        default=["{}"],
        metavar="JSON",
        help="the workload's settings; in several pieces, since one has at most 256 characters",
    )
    parser.add_argument("--tokenizer", type=Path, help="a Hugging Face tokenizer.json")
    parser.add_argument(
        "--inputs",
        nargs="+",
        default=[],
        metavar="NAME",
        help="the folders of the raw data; no sample contains records of two of them",
    )
    parser.add_argument(
        "--summary",
        action="store_true",
        help="also write a summary of the train split, which an evaluation reads instead of it",
    )
    parser.add_argument("--input", type=Path, help="a folder that every instance can read")
    parser.add_argument("--output", type=Path, help="a folder that every instance may write to")
    parser.add_argument(
        "--address",
        help="a Ray cluster of your own, as auto or NAME:PORT, whose nodes mount input and output",
    )
    parser.add_argument("--patience", type=float, default=PATIENCE, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    options = parse_typed_arguments(parser, arguments, ShardSettings)
    options.processes, options.words = options.processes or count_cores(), [*arguments]
    return options


def find_input_folder(options: argparse.Namespace) -> Path:
    """Return the folder of the raw data."""
    return options.input or options.root / "processing/input/raw"


def build_plan(options: argparse.Namespace, host: str) -> Plan:
    """Return the plan of the instance ``host`` from the job's arguments.

    Raises:
        DataError: the output folder is inside the input folder.
    """
    plan = Plan(
        workload=options.workload,
        config=parse_settings("".join(options.workload_config)),
        assets=options.tokenizer.parent if options.tokenizer else None,
        key=options.key,
        validation_share=options.validation_share,
        test_share=options.test_share,
        shard_bytes=max(1, int(options.shard_mb * 1e6)),
        max_bad_share=options.max_bad_share,
        unique=None if options.unique is None else tuple(options.unique),
        # No sample may contain records of two inputs, so the folders of the inputs are kept
        # separate.
        by_folder=options.by_folder or bool(options.inputs),
        inputs=bool(options.inputs),
        summary=options.summary,
        output=options.output or options.root / "processing/output",
        host=host,
    )
    # Otherwise a second run of the job would take the shards for raw data.
    if plan.output.resolve().is_relative_to(find_input_folder(options).resolve()):
        raise DataError(
            f"{plan.output}: is inside the input folder {find_input_folder(options)}; choose an "
            "output folder outside it"
        )
    return plan


def check_objects(objects: Sequence[RawObject], folder: Path, inputs: Sequence[str]) -> None:
    """Check that there are raw data files, that each input has some, and that formats are known.

    Raises:
        DataError: a file or an input is missing, unknown, or of an unknown format.
    """
    from steps.shard import readers  # imports pyarrow

    if not objects:
        raise DataError("0 files in the raw input; upload data under data.input")
    folders = {raw.folder for raw in objects}
    if inputs and (differences := sorted(folders ^ {*inputs})):
        problem = "holds no file" if differences[0] in inputs else "is not one of data.inputs"
        raise DataError(
            f"{folder / differences[0]}: {problem}; there has to be a folder with data for each of "
            f"{', '.join(sorted(inputs))}, and nothing else"
        )
    readers.check_suffixes(raw.name for raw in objects if not raw.files)


def check_inputs(corpus_survey: Survey, inputs: Sequence[str]) -> None:
    """Check that each input has at least one record left.

    Raises:
        DataError: an input has none.
    """
    for name in inputs:
        if not corpus_survey.bytes.get(name):
            raise DataError(
                f"input {name}: none of its records is kept: its files are empty, or each record "
                "is also in another input, or is quarantined; leave it out of data.inputs, or "
                "set "
                "shard.unique"
            )
