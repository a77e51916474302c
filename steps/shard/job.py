"""Shard the raw objects: this instance's part of the dataset.

python -m steps.shard.job --workload language_model --workload_config '{…}' --key key

On a file system that every instance mounts (FSx for Lustre), name its folders: all instances then
write into the same output folder.

python -m steps.shard.job --workload … --input /fsx/raw --output /fsx/dataset

Each of several instances reads its part of the files, and packs its part of the units that the
distinct records are cut into; in between they exchange records. Killed at any moment and run again,
the job does what is missing. The dataset is the same whatever the number of instances and
processes, and however the records lie in files.
"""

import argparse
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from steps.job_arguments import typed
from steps.job_main import run
from steps.shard import cluster, manifests, pool_results, raw_objects, shard_progress, survey
from steps.shard.pool import Pool, room_on
from steps.shard.quarantine import check_share, summary
from steps.shard.raw_objects import RawObject
from steps.shard.settings import ShardSettings
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import SPLITS, Plan
from steps.shard.shard_progress import Packed
from steps.shard.survey import STEM, Survey
from training.workloads import read_settings
from trainyard.common import atomic_file
from trainyard.common.errors import DataError
from trainyard.common.usable_cores import cores

if TYPE_CHECKING:
    from steps.shard.exchange import Peers

log = logging.getLogger(__name__)

PATIENCE = 1800
"""Seconds that one of several instances may be silent: it may not have begun, or begin again."""


def shard(options: argparse.Namespace) -> None:
    """Read the raw objects, pack the samples, write the manifests last.

    Raises:
        DataError: no raw data; objects that cannot be read; too many bad records.
        TrainyardError: a worker died, another instance is silent, or the output is full.
    """
    instances = cluster.read(options.root, options.addresses, options.patience)
    plan = _plan(options, instances.host)
    for folder in (*plan.folders, "quarantine"):
        (plan.output / folder).mkdir(parents=True, exist_ok=True)
    manifests.refuse_strangers(plan, instances.hosts)
    shard_progress.remove_remains(plan)
    if len(instances.hosts) == 1:
        _shard(options, plan, None)
        return
    from steps.shard.exchange import Peers  # imports pyarrow

    with Peers(instances, plan) as peers:
        _shard(options, plan, peers)


def _shard(options: argparse.Namespace, plan: Plan, peers: "Peers | None") -> None:
    whole, own = _objects(options, plan, peers)
    number, count = (peers.cluster.number, len(peers.cluster.hosts)) if peers else (0, 1)
    from steps.shard import readers, sorted_runs  # import pyarrow, after the wait for the others

    readers.refuse_unknown(one.name for one in whole if not one.files)
    with room_on(plan.output), Pool(plan, options.processes) as pool:
        found = _surveyed(whole, own, plan, pool, peers)
        _check_inputs(found, options.inputs)
        units = survey.shares(found.units(plan), count)[number]
        packed = pool_results.pack_units(units, plan, pool)
        _finish(found, packed, plan)
    sorted_runs.opened.cache_clear()
    _end(plan, peers)


def _surveyed(
    whole: Sequence[RawObject], own: Sequence[RawObject], plan: Plan, pool: Pool,
    peers: "Peers | None",
) -> Survey:  # fmt: skip
    if peers:
        from steps.shard import together

        return together.survey_and_pull(whole, own, peers, plan, pool)
    from steps.shard import survey_pass

    reads = pool_results.read_objects(own, plan, pool)
    corpus = survey_pass.Corpus(whole, [reads], plan)
    check_share(corpus.counts(), plan.max_bad_share)
    found = survey_pass.survey(corpus, plan)
    shard_progress.write(found, STEM, plan.progress)
    return found


def _finish(found: Survey, packed: Mapping[ShardObject, Packed], plan: Plan) -> None:
    atomic_file.write(plan.output / f"quarantine/summary-{plan.host}.json", summary(found.objects))
    built = manifests.build(found, packed, plan)
    manifests.write(manifests.contents(built, plan, plan.host))
    for split in SPLITS:
        manifests.log_balance(built[split])


def _end(plan: Plan, peers: "Peers | None") -> None:
    if peers:
        peers.linger()
    _clear(plan)


def _clear(plan: Plan) -> None:
    """Delete the sorted runs, which are no longer needed; the last instance deletes the shared
    folder.
    """
    shutil.rmtree(plan.scratch, ignore_errors=True)
    with suppress(OSError):
        plan.scratch.parent.rmdir()


def _objects(
    options: argparse.Namespace, plan: Plan, peers: "Peers | None"
) -> tuple[list[RawObject], list[RawObject]]:
    """Return all raw objects, and those that this instance reads."""
    folder = options.input or options.root / "processing/input/raw"
    if plan.output.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{plan.output}: lies in the input {folder}; name an output elsewhere")
    if peers:
        from steps.shard import together

        whole, own = together.objects(peers, folder, plan, shared=bool(options.input))
        peers.corpus = {**peers.identity, **survey.identity(whole, plan)}
    else:
        whole = own = raw_objects.find(folder, plan.settings)
    if not whole:
        raise DataError("0 files in the raw input; upload data under data.input")
    there, inputs = {one.folder for one in whole}, set(options.inputs)
    if inputs and (wrong := sorted(there ^ inputs)):
        what = "holds no file" if wrong[0] in inputs else "is not one of data.inputs"
        raise DataError(
            f"{folder / wrong[0]}: {what}; there has to be a folder with data for each of "
            f"{', '.join(sorted(inputs))}, and nothing else"
        )
    return whole, own


def _check_inputs(found: Survey, inputs: Sequence[str]) -> None:
    """Raises: DataError: an input keeps no record."""
    for name in inputs:
        if not found.bytes.get(name):
            raise DataError(
                f"input {name}: none of its records stays: its files are empty, or each record is "
                "in another input as well, or is quarantined; leave it out of data.inputs, or set "
                "shard.unique"
            )


def _plan(options: argparse.Namespace, host: str) -> Plan:
    return Plan(
        workload=options.workload,
        config=read_settings("".join(options.workload_config)),
        assets=options.tokenizer.parent if options.tokenizer else None,
        key=options.key,
        validation_share=options.validation_share,
        test_share=options.test_share,
        shard_bytes=max(1, int(options.shard_mb * 1e6)),
        max_bad_share=options.max_bad_share,
        unique=None if options.unique is None else tuple(options.unique),
        by_folder=options.by_folder or bool(options.inputs),
        inputs=bool(options.inputs),
        summary=options.summary,
        output=options.output or options.root / "processing/output",
        host=host,
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
        help="the folders of the raw data; no sample holds records of two",
    )
    parser.add_argument(
        "--summary",
        action="store_true",
        help="also write a summary of the train split, which an evaluation reads instead of it",
    )
    parser.add_argument("--input", type=Path, help="a folder that every instance can read")
    parser.add_argument("--output", type=Path, help="a folder that every instance may write to")
    parser.add_argument(
        "--addresses", nargs="+", default=[], metavar="NAME:PORT", help=argparse.SUPPRESS
    )
    parser.add_argument("--patience", type=float, default=PATIENCE, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    options = typed(parser, arguments, ShardSettings)
    options.processes = options.processes or cores()
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: shard(options), options.root / "output/message")


if __name__ == "__main__":
    main()
