"""Shard this instance's part of the raw objects.

python -m steps.shard.job --workload language_model --workload_config '{…}' --key key

On a file system that every instance mounts (FSx for Lustre), name its folders: every instance then
takes its part of the files, and writes into the same output folder.

python -m steps.shard.job --workload … --input /fsx/raw --output /fsx/dataset

Killed at any moment and run again, the job does what is missing. The dataset is the same whatever
the number of instances and processes, and in whatever order the files are listed.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from errors import DataError
from steps.edge import run
from steps.shard import manifests, progress, raw
from steps.shard.plan import Plan
from steps.shard.pool import room_on, shard_all
from steps.shard.progress import FOLDERS, Progress
from steps.shard.quarantine import NAMED, check_share, summary
from steps.shard.raw import RawObject
from training.data.manifest import write_atomically
from training.workloads import read_settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cluster:
    """This instance among those of the job."""

    current_host: str
    hosts: list[str]


def shard(options: argparse.Namespace) -> None:
    """Find what is missing, do it, write the manifests.

    Raises:
        DataError: no raw data; objects that cannot be read; too many bad records.
        TrainyardError: a worker died, or the output is full.
    """
    plan, cluster = _plan(options), _cluster(options.root)
    objects = _objects(options, plan, cluster)
    for folder in FOLDERS:
        (plan.output / folder).mkdir(parents=True, exist_ok=True)
    manifests.refuse_strangers(plan.output, cluster.hosts)
    done = progress.taken_over(objects, plan, options.processes)
    missing = [one for one in objects if one not in done]
    host = cluster.current_host
    if not missing:
        check_share(done, plan.max_bad_share)
        if manifests.stand(manifests.contents(manifests.build(done, plan), plan, host)):
            log.info("%d raw objects: all is done already, nothing to do", len(done))
            return
    manifests.remove(plan.output, host)
    with room_on(plan.output):
        done |= _shard(missing, done, plan, options.processes)
        _finish(done, plan, host)


def _shard(
    missing: list[RawObject], done: Mapping[RawObject, Progress], plan: Plan, processes: int
) -> dict[RawObject, Progress]:
    """Shard what is missing; its progress records."""
    if done:
        log.info("%d raw objects are done already", len(done))
    progress.remove_leftovers(missing, plan.output)
    damaged = shard_all(missing, plan, processes)
    if damaged:
        more = f"; and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
        raise DataError("; ".join(damaged[:NAMED]) + more)
    return {one: progress.read(one, plan) for one in missing}


def _finish(done: Mapping[RawObject, Progress], plan: Plan, host: str) -> None:
    check_share(done, plan.max_bad_share)
    write_atomically(plan.output / f"quarantine/summary-{host}.json", summary(done))
    built = manifests.build(done, plan)
    manifests.write(manifests.contents(built, plan, host))
    for manifest in built:
        manifests.log_balance(manifest)


def _objects(options: argparse.Namespace, plan: Plan, cluster: Cluster) -> list[RawObject]:
    """What this instance shards: all that it was given, or its part of a shared folder."""
    folder = options.input or options.root / "processing/input/raw"
    if plan.output.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{plan.output}: lies in the input {folder}; name an output elsewhere")
    objects = raw.find(folder, plan.settings)
    if options.input:
        objects = raw.part_of(objects, cluster.current_host, cluster.hosts)
    if not objects and len(cluster.hosts) == 1:
        raise DataError("0 files in the raw input; upload data under data.input")
    return objects


def _plan(options: argparse.Namespace) -> Plan:
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
        output=options.output or options.root / "processing/output",
    )


def _cluster(root: Path) -> Cluster:
    """From SageMaker's resourceconfig.json; without one (no SageMaker) there is one instance."""
    path = root / "config/resourceconfig.json"
    if not path.is_file():
        log.info("%s: is missing, so this is the only instance", path)
        return Cluster("algo-1", ["algo-1"])
    content = json.loads(path.read_bytes())
    return Cluster(content["current_host"], content["hosts"])


def cores() -> int:
    """That this process may use; macOS cannot restrict a process to some of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """The job's arguments."""
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
    parser.add_argument("--key", help="column whose value decides the split (none: the record)")
    parser.add_argument("--validation_share", type=_share, default=0.05)
    parser.add_argument("--test_share", type=_share, default=0.05)
    parser.add_argument("--shard_mb", type=_positive, default=64, help="largest shard, 10^6 bytes")
    parser.add_argument("--max_bad_share", type=_share, default=0.001)
    parser.add_argument("--unique", nargs="*", metavar="COLUMN", help="of duplicates; none: keep")
    parser.add_argument("--processes", type=_count, default=cores())
    parser.add_argument("--tokenizer", type=Path, help="a Hugging Face tokenizer.json")
    parser.add_argument("--input", type=Path, help="a folder that every instance sees")
    parser.add_argument("--output", type=Path, help="a folder that every instance may write to")
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.validation_share + options.test_share >= 1:
        parser.error("--validation_share and --test_share leave nothing to train on")
    return options


def _share(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a share between 0 and 1")
    return float(text)


def _positive(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return float(text)


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 1")
    return int(text)


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: shard(options), options.root / "output/message")


if __name__ == "__main__":
    main()
