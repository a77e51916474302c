"""Shard the raw objects: this instance's part of the dataset.

python -m steps.shard.job --workload language_model --workload_config '{…}' --key key

On a file system that every instance mounts (FSx for Lustre), name its folders: all instances then
write into the same output folder.

python -m steps.shard.job --workload … --input /fsx/raw --output /fsx/dataset

Every instance reads all files, and packs its part of the units that their distinct records are cut
into. Killed at any moment and run again, the job does what is missing. The dataset is the same
whatever the number of instances and processes, and however the records lie in files.
"""

import argparse
import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steps.job_arguments import typed
from steps.job_main import run
from steps.shard import manifests, raw_objects, shard_progress, survey
from steps.shard.pool import Pool, room_on
from steps.shard.pool_tasks import Task
from steps.shard.quarantine import NAMED, check_share, summary
from steps.shard.raw_objects import RawObject
from steps.shard.settings import ShardSettings
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import SPLITS, Plan
from steps.shard.shard_progress import Packed, Read
from steps.shard.survey import STEM, Survey
from training.workloads import read_settings
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

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
    cluster = _cluster(options.root)
    plan = _plan(options, cluster.current_host)
    objects = _objects(options, plan, cluster)
    for folder in (*plan.folders, "quarantine"):
        (plan.output / folder).mkdir(parents=True, exist_ok=True)
    manifests.refuse_strangers(plan, cluster.hosts)
    done = shard_progress.already_read(objects, plan)
    found = shard_progress.read(Survey, STEM, survey.identity(objects, plan), plan.progress)
    if len(done) == len(objects) and found:
        check_share(done, plan.max_bad_share)
        own = _own(found.units(plan), cluster)
        packed = shard_progress.already_packed(own, plan, options.processes)
        if len(packed) == len(own) and _stand(done, found, packed, plan):
            log.info("%d raw objects: all is done already, nothing to do", len(done))
            _clear(plan)
            return
    from steps.shard import (
        sorted_runs,
        survey_pass,  # imports pyarrow, so only if there is work
    )

    manifests.remove(plan)
    with room_on(plan.output), Pool(plan, options.processes) as pool:
        plan.scratch.mkdir(parents=True, exist_ok=True)
        plan.progress.mkdir(parents=True, exist_ok=True)
        done = _read(objects, done, plan, pool)
        found = survey_pass.survey(done, plan)
        _check_inputs(found, options.inputs)
        shard_progress.write(found, STEM, plan)
        packed = _pack(_own(found.units(plan), cluster), plan, pool)
        _finish(done, found, packed, plan)
    sorted_runs.opened.cache_clear()
    _clear(plan)


def _read(
    objects: list[RawObject], done: Mapping[RawObject, Read], plan: Plan, pool: Pool
) -> dict[RawObject, Read]:
    """Read the raw objects that are not read, or lack a sorted run; return all records."""
    done = shard_progress.with_runs(done, plan, pool.processes)
    missing = [one for one in objects if one not in done]
    shard_progress.remove_leftovers(missing, plan)
    _work_off("raw objects", missing, pool)
    done |= shard_progress.already_read(missing, plan)
    check_share(done, plan.max_bad_share)
    return done


def _pack(units: list[ShardObject], plan: Plan, pool: Pool) -> dict[ShardObject, Packed]:
    """Pack the units that are not packed yet; return all records."""
    done = shard_progress.already_packed(units, plan, pool.processes)
    if done:
        log.info("%d units are done already", len(done))
    missing = [one for one in units if one not in done]
    shard_progress.remove_half_packed(missing, plan)
    _work_off("units", missing, pool)
    for one in missing:
        packed = shard_progress.read(Packed, one.stem, one.identity, plan.progress)
        assert packed is not None  # its worker has just written it
        done[one] = packed
    return done


def _work_off(what: str, missing: Sequence[Task], pool: Pool) -> None:
    damaged = pool.work_off(what, missing) if missing else []
    if damaged:
        more = f"; and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
        raise DataError("; ".join(damaged[:NAMED]) + more)


def _own(units: list[ShardObject], cluster: Cluster) -> list[ShardObject]:
    """Return this instance's share of the units, which all instances know."""
    hosts = sorted(cluster.hosts)
    return units[hosts.index(cluster.current_host) :: len(hosts)]


def _stand(
    done: Mapping[RawObject, Read], found: Survey, packed: Mapping[ShardObject, Packed], plan: Plan
) -> bool:
    built = manifests.build(done, found, packed, plan)
    return manifests.stand(manifests.contents(built, plan, plan.host))


def _finish(
    done: Mapping[RawObject, Read], found: Survey, packed: Mapping[ShardObject, Packed], plan: Plan
) -> None:
    atomic_file.write(plan.output / f"quarantine/summary-{plan.host}.json", summary(done))
    built = manifests.build(done, found, packed, plan)
    manifests.write(manifests.contents(built, plan, plan.host))
    for split in SPLITS:
        manifests.log_balance(built[split])


def _clear(plan: Plan) -> None:
    """Delete the sorted runs, which are no longer needed; the last instance deletes the shared
    folder.
    """
    shutil.rmtree(plan.scratch, ignore_errors=True)
    with suppress(OSError):
        plan.scratch.parent.rmdir()


def _objects(options: argparse.Namespace, plan: Plan, cluster: Cluster) -> list[RawObject]:
    """Return all raw objects."""
    folder = options.input or options.root / "processing/input/raw"
    if plan.output.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{plan.output}: lies in the input {folder}; name an output elsewhere")
    objects = raw_objects.shared(raw_objects.find(folder, plan.settings), plan.host, cluster.hosts)
    if not objects:
        raise DataError("0 files in the raw input; upload data under data.input")
    there, inputs = {one.folder for one in objects}, set(options.inputs)
    if inputs and (wrong := sorted(there ^ inputs)):
        what = "holds no file" if wrong[0] in inputs else "is not one of data.inputs"
        raise DataError(
            f"{folder / wrong[0]}: {what}; there has to be a folder with data for each of "
            f"{', '.join(sorted(inputs))}, and nothing else"
        )
    return objects


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


def _cluster(root: Path) -> Cluster:
    """Read SageMaker's resourceconfig.json; without it (outside SageMaker) there is
    one instance.
    """
    path = root / "config/resourceconfig.json"
    if not path.is_file():
        log.info("%s: is missing, so this is the only instance", path)
        return Cluster("algo-1", ["algo-1"])
    content = json.loads(path.read_bytes())
    return Cluster(content["current_host"], content["hosts"])


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
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    options = typed(parser, arguments, ShardSettings)
    options.processes = options.processes or cores()
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: shard(options), options.root / "output/message")


if __name__ == "__main__":
    main()
