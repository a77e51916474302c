"""Shard the raw objects: this instance's part of the dataset.

python -m steps.shard.job --workload language_model --workload_config '{…}' --key key

On a file system that every instance mounts (FSx for Lustre), name its folders: all instances then
write into the same output folder.

python -m steps.shard.job --workload … --input /fsx/raw --output /fsx/dataset

Several instances are a Ray cluster: each reads its part of the files, and packs its part of the
units that the distinct records are cut into. On a Ray cluster of your own, whose nodes share the
folders, it runs with ``--address``:

python -m steps.shard.job --workload … --input /fsx/raw --output /fsx/dataset --address auto

Killed at any moment and run again, the job gives the same dataset, which is the same whatever the
number of instances and processes, and however the records lie in files.
"""

import argparse
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from steps.job_arguments import typed
from steps.job_main import run
from steps.shard import instances, manifests, pool_results, raw_objects, shard_progress
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
from trainyard.common.errors import DataError, TrainyardError

log = logging.getLogger(__name__)

PATIENCE = 1800
"""Seconds that the first of several instances waits for the others, and they for it."""


def shard(options: argparse.Namespace) -> None:
    """Read the raw objects, pack the samples, write the manifests last.

    Raises:
        DataError: no raw data; objects that cannot be read; too many bad records.
        TrainyardError: a worker died, another instance is gone, or the output is full.
    """
    if options.address:
        if not (options.input and options.output):
            raise TrainyardError(
                "--address: needs --input and --output, folders that every node of the Ray cluster "
                "mounts, as in --input /fsx/raw --output /fsx/dataset"
            )
        _check_ray()
        from steps.shard import ray_program

        ray_program.on_cluster(options)
        return
    group = instances.read(options.root)
    if len(group.hosts) == 1:
        _shard_alone(options, plan_of(options, group.host))
        return
    _check_ray()
    from steps.shard import ray_cluster

    scratch = plan_of(options, group.host).scratch
    spill = scratch.with_name(f"{scratch.name}-ray")
    with ray_cluster.running_node(group, options.words, spill, options.processes) as node:
        if group.host == group.hosts[0]:
            from steps.shard import ray_program  # Ray reads the environment when it is imported

            ray_program.lead(node, options, options.patience)
        else:
            node.follow(options.patience)
    with suppress(OSError):
        scratch.parent.rmdir()


def _check_ray() -> None:
    """Raises: TrainyardError: Ray is not installed."""
    if find_spec("ray") is None:
        raise TrainyardError(
            "ray: is not installed, and several instances need it; set shard.instance_count in the "
            "recipe, which then installs it, or use one instance"
        )


def _shard_alone(options: argparse.Namespace, plan: Plan) -> None:
    prepare(plan, [plan.host])
    folder = input_of(options)
    whole = raw_objects.find(folder, plan.settings)
    check_objects(whole, folder, options.inputs)
    from steps.shard import sorted_runs, survey_pass  # import pyarrow

    with room_on(plan.output), Pool(plan, options.processes) as pool:
        reads = pool_results.read_objects(whole, plan, pool)
        corpus = survey_pass.Corpus(whole, [reads], plan)
        check_share(corpus.counts(), plan.max_bad_share)
        found = survey_pass.survey(corpus, plan)
        shard_progress.write(found, STEM, plan.progress)
        check_inputs(found, options.inputs)
        finish(found, pool_results.pack_units(found.units(plan), plan, pool), plan)
    sorted_runs.opened.cache_clear()
    # The sorted runs are no longer needed.
    shutil.rmtree(plan.scratch, ignore_errors=True)
    with suppress(OSError):
        plan.scratch.parent.rmdir()


def prepare(plan: Plan, hosts: Sequence[str]) -> None:
    """Create the output's folders, and remove what a killed run left there.

    Raises:
        DataError: it has files of another job.
    """
    for folder in (*plan.folders, "quarantine"):
        (plan.output / folder).mkdir(parents=True, exist_ok=True)
    manifests.refuse_strangers(plan, hosts)
    shard_progress.remove_remains(plan)


def input_of(options: argparse.Namespace) -> Path:
    """Return the folder of the raw data."""
    return options.input or options.root / "processing/input/raw"


def finish(found: Survey, packed: Mapping[ShardObject, Packed], plan: Plan) -> None:
    """Write the manifests of an instance."""
    atomic_file.write(plan.output / f"quarantine/summary-{plan.host}.json", summary(found.objects))
    built = manifests.build(found, packed, plan)
    manifests.write(manifests.contents(built, plan, plan.host))
    for split in SPLITS:
        manifests.log_balance(built[split])


def check_objects(whole: Sequence[RawObject], folder: Path, inputs: Sequence[str]) -> None:
    """Raises: DataError: there are no raw data, or not of each input, or of a format unknown."""
    from steps.shard import readers  # imports pyarrow

    if not whole:
        raise DataError("0 files in the raw input; upload data under data.input")
    there = {one.folder for one in whole}
    if inputs and (wrong := sorted(there ^ {*inputs})):
        what = "holds no file" if wrong[0] in inputs else "is not one of data.inputs"
        raise DataError(
            f"{folder / wrong[0]}: {what}; there has to be a folder with data for each of "
            f"{', '.join(sorted(inputs))}, and nothing else"
        )
    readers.refuse_unknown(one.name for one in whole if not one.files)


def check_inputs(found: Survey, inputs: Sequence[str]) -> None:
    """Raises: DataError: an input keeps no record."""
    for name in inputs:
        if not found.bytes.get(name):
            raise DataError(
                f"input {name}: none of its records stays: its files are empty, or each record is "
                "in another input as well, or is quarantined; leave it out of data.inputs, or set "
                "shard.unique"
            )


def plan_of(options: argparse.Namespace, host: str) -> Plan:
    """Return the plan of an instance.

    Raises:
        DataError: the output lies in the input.
    """
    plan = _plan(options, host)
    if plan.output.resolve().is_relative_to(input_of(options).resolve()):
        raise DataError(
            f"{plan.output}: lies in the input {input_of(options)}; name an output elsewhere"
        )
    return plan


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


def cores() -> int:
    """Return the cores that this process may use; macOS cannot restrict a process to
    some of them.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
        "--address",
        help="a Ray cluster of your own, as auto or NAME:PORT, whose nodes mount input and output",
    )
    parser.add_argument("--patience", type=float, default=PATIENCE, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    options = typed(parser, arguments, ShardSettings)
    options.processes, options.words = options.processes or cores(), [*arguments]
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: shard(options), options.root / "output/message")


if __name__ == "__main__":
    main()
