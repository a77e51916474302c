"""Shard the raw objects: write this instance's part of the dataset.

python -m steps.shard.job --workload language_model --workload_config '{…}' --key key

With a file system that every instance mounts (FSx for Lustre), give its folders: then all instances
write to the same output folder.

python -m steps.shard.job --workload … --input /fsx/raw --output /fsx/dataset

Several instances form a Ray cluster: each reads its part of the files, and packs its part of the
units into which the distinct records are divided. On a Ray cluster of your own, whose nodes share
the folders, the job runs with ``--address``:

python -m steps.shard.job --workload … --input /fsx/raw --output /fsx/dataset --address auto

If the job is killed at any time and run again, it gives the same dataset. The dataset does not
depend on the number of instances and processes, nor on how the records are distributed over files.
"""

import argparse
import logging
import shutil
import sys
from contextlib import suppress
from importlib.util import find_spec

from steps.job_main import run
from steps.shard import manifests, pool, raw_objects, ray_cluster, shard_progress
from steps.shard.arguments import (
    build_plan,
    check_inputs,
    check_objects,
    find_input_folder,
    parse_arguments,
)
from steps.shard.manifests import check_bad_share
from steps.shard.pool import Pool, disk_full_errors
from steps.shard.shard_plan import Plan
from steps.shard.survey import STEM
from trainyard.common.errors import TrainyardError

log = logging.getLogger(__name__)


def write_shards(options: argparse.Namespace) -> None:
    """Read the raw objects, pack the samples, and write the manifests last.

    Raises:
        DataError: there is no raw data, an object cannot be read, or too many records are bad.
        TrainyardError: a worker or another instance died, or the output's disk is full.
    """
    if options.address:
        if not (options.input and options.output):
            raise TrainyardError(
                "--address: needs --input and --output, folders that every node of the Ray cluster "
                "mounts, as in --input /fsx/raw --output /fsx/dataset"
            )
        _check_ray()
        from steps.shard import ray_program

        ray_program.shard_on_cluster(options)
        return
    group = ray_cluster.read_instances(options.root)
    if len(group.hosts) == 1:
        _shard_on_one_instance(options, build_plan(options, group.host))
        return
    _check_ray()
    scratch = build_plan(options, group.host).scratch
    # Next to the scratch folder, not in it, because ``manifests.prepare_output`` empties it while
    # Ray runs.
    spill = scratch.with_name(f"{scratch.name}-ray")
    node_settings = (
        group, options.words, spill, options.processes, options.root / "output/message"
    )  # fmt: skip
    with ray_cluster.open_node(*node_settings) as node:
        if group.host == group.hosts[0]:
            from steps.shard import ray_program  # only now: Ray reads the environment on import

            ray_program.run_as_head(node, options, options.patience)
        else:
            node.work_until_end(options.patience)
    with suppress(OSError):
        scratch.parent.rmdir()


def _check_ray() -> None:
    """Raise TrainyardError if Ray is not installed."""
    if find_spec("ray") is None:
        raise TrainyardError(
            "ray: is not installed, and several instances need it; set shard.instance_count in the "
            "recipe, which then installs it, or use one instance"
        )


def _shard_on_one_instance(options: argparse.Namespace, plan: Plan) -> None:
    """Write the whole dataset in this instance's processes, without Ray."""
    manifests.prepare_output(plan, [plan.host])
    folder = find_input_folder(options)
    objects = raw_objects.find_raw_objects(folder, plan.settings_sha256)
    check_objects(objects, folder, options.inputs)
    from steps.shard import sorted_runs, survey_pass  # import pyarrow

    with disk_full_errors(plan.output), Pool(plan, options.processes) as worker_pool:
        reads = pool.read_objects(objects, plan, worker_pool)
        corpus = survey_pass.Corpus(objects, [reads], plan)
        check_bad_share(corpus.count_records(), plan.max_bad_share)
        corpus_survey = survey_pass.survey_corpus(corpus, plan)
        # Written before any unit is packed, because the workers read the survey from its file.
        shard_progress.write_progress(corpus_survey, STEM, plan.progress)
        check_inputs(corpus_survey, options.inputs)
        packed_units = pool.pack_units(corpus_survey.list_units(plan), plan, worker_pool)
        manifests.write_manifests(corpus_survey, packed_units, plan)
    sorted_runs.open_run.cache_clear()
    # The sorted runs (files of sorted records) are no longer needed.
    shutil.rmtree(plan.scratch, ignore_errors=True)
    with suppress(OSError):
        plan.scratch.parent.rmdir()


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments, __doc__)
    run(lambda: write_shards(options), options.root / "output/message")


if __name__ == "__main__":
    main()
