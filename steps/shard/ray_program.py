"""Shard on several instances by Ray: the program that the first instance runs.

Each instance reads its part of the raw objects into sorted runs. Then the job looks for equal
records in each range of hashes, and sends each record that is kept to the instance that packs its
unit. They are sent in waves: batches of runs, of a limited size, so that the object store need not
spill to the disk. The dataset is the same as that of one instance.
"""

import argparse
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from steps.shard import arguments, raw_objects, ray_tasks, survey
from steps.shard.manifests import check_bad_share
from steps.shard.pool import ProgressLogger, check_task_errors
from steps.shard.raw_objects import PackingUnit, RawObject
from steps.shard.ray_cluster import LOOK_SECONDS, Node, keep_loopback
from steps.shard.ray_tasks import HostState, Instance, OwnRun, Span
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import PackedUnit, ReadResult
from steps.shard.survey import Survey
from steps.shard.survey_pass import Corpus
from trainyard.common.errors import DataError, TrainyardError

log = logging.getLogger(__name__)

COPIES = 2
"""Number of copies of its share of the raw data that an instance stores as records: those that it
has read, and those that it has pulled from the others.
"""
WAVE_BYTES = 256 * 10**6
"""Bytes of content that each instance sends in one wave. Two waves are sent at the same time."""
LOST_LOOK_SECONDS = 5
"""Seconds between two checks of which instances are in the cluster."""
END_SECONDS = 30
"""Seconds within which the instances must learn how the job has ended."""


def run_as_head(node: Node, options: argparse.Namespace, patience: float) -> None:
    """Start the head, wait for the other instances, and shard on all of them.

    Raises:
        DataError: as ``Program.run``.
        TrainyardError: an instance did not join, or is lost; a worker died; a disk is full.
    """
    hosts = node.instances.hosts
    start_head(node)
    instances = [Instance(host) for host in hosts]
    # Message for the other instances if the block below ends in another way, by a signal or a bug.
    message = "the job was stopped"
    try:
        _wait_for_instances(hosts, patience)
        Program(instances, options, placed=True).run()
        message = ""
    except (RayError, TrainyardError) as error:
        message = str(translate_error(error))
        raise translate_error(error) from None
    finally:
        # Tell only instances that are in the cluster: a task for one that is gone would never run.
        live_hosts = [host for host in hosts[1:] if host in ray.cluster_resources()]
        ends = [
            ray_tasks.write_ended_file.options(resources={host: 1}).remote(message)
            for host in live_hosts
        ]
        ray.wait(ends, num_returns=len(ends), timeout=END_SECONDS) if ends else None
        ray.shutdown()


def shard_on_cluster(options: argparse.Namespace) -> None:
    """Shard on the Ray cluster at ``options.address``. Its nodes must share input and output."""
    keep_loopback(options.address)
    checkout = Path(__file__).resolve().parents[2]
    code = [str(checkout / name) for name in ("steps", "training", "trainyard")]
    try:
        ray.init(options.address, log_to_driver=False, runtime_env={"py_modules": code})
    except ConnectionError as error:
        raise TrainyardError(f"--address {options.address}: {error}") from None
    try:
        # Nodes without cores, such as a head that runs no tasks, get no part of the data.
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        count = len(nodes)
        words = tuple(options.words)
        hosts = [f"node-{number + 1:04d}" for number in range(count)]
        Program([Instance(host, words) for host in hosts], options, placed=False).run()
    except (RayError, TrainyardError) as error:
        raise translate_error(error) from None
    finally:
        ray.shutdown()


def translate_error(error: Exception) -> TrainyardError:
    """Return the error to show to the user for an error of a task or of Ray."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        if isinstance(cause, TrainyardError):
            return cause
        if isinstance(cause, RayError):
            return translate_error(cause)
        return TrainyardError(str(error))
    if isinstance(error, RayError):
        advice = (
            "use an instance type with more memory for each core, or lower shard.processes"
            if isinstance(error, OutOfMemoryError)
            else "see the logs of the instances, and run the step again"
        )
        return TrainyardError(f"{' '.join(str(error).split())[:800]}: {advice}")
    assert isinstance(error, TrainyardError)
    return error


def start_head(node: Node) -> None:
    """Start Ray's head on this instance, and connect to it.

    Raises:
        TrainyardError: the head does not start.
    """
    node.start(head=True)
    try:
        ray.init(
            node.head_address, log_to_driver=False, logging_level=logging.WARNING,
            _node_ip_address=node.instances.address,
        )  # fmt: skip
    except ConnectionError as error:
        raise TrainyardError(f"{node.head_address}: {error}") from None


def _wait_for_instances(hosts: Sequence[str], patience: float) -> None:
    """Wait until all instances have joined the cluster.

    Raises:
        TrainyardError: an instance did not join within ``patience`` seconds.
    """
    start = logged = time.monotonic()
    while missing := [host for host in hosts if host not in ray.cluster_resources()]:
        now = time.monotonic()
        if now - start > patience:
            raise TrainyardError(
                f"{', '.join(missing)}: did not join {hosts[0]} within {patience:,.0f} s; see the "
                "log there, and run the step again. In a VPC the job's security group has to let "
                "its instances reach each other"
            )
        if now - logged >= 10:
            logged = now
            log.info("waiting for %s", ", ".join(missing))
        time.sleep(LOOK_SECONDS)


class Program:
    """The steps of the job on several instances.

    Args:
        placed: whether an instance's tasks have to run on that instance. False if all nodes share
            their folders.
    """

    def __init__(
        self, instances: Sequence[Instance], options: argparse.Namespace, *, placed: bool
    ) -> None:
        self._instances, self._options, self._placed = instances, options, placed
        self._hosts = [instance.host for instance in instances]
        self._plan: Plan = arguments.build_plan(options, self._hosts[0])

    def run(self) -> None:
        """Shard the raw data.

        Raises:
            DataError: no raw data; objects that cannot be read; too many bad records.
            TrainyardError: a disk has too little room.
        """
        objects, parts = self._list_objects()
        reads = self._read_objects(parts)
        corpus = Corpus(objects, reads, self._plan)
        check_bad_share(corpus.count_records(), self._plan.max_bad_share)
        corpus_survey = self._survey_corpus(corpus)
        arguments.check_inputs(corpus_survey, self._options.inputs)
        units = survey.divide_units(corpus_survey.list_units(self._plan), len(self._instances))
        self._gather_records(corpus, corpus_survey, units)
        packed_units = self._pack_units(units)
        self._wait_for_all([
            self._place_task(instance, ray_tasks.finish_instance).remote(
                instance, corpus_survey, own_units)
            for instance, own_units in zip(self._instances, packed_units, strict=True)
        ])  # fmt: skip

    def _place_task(self, instance: Instance, task: Any, **options: Any) -> Any:
        """Return the Ray task with the options that make the right node run it."""
        placement = (
            {"resources": {instance.host: 1}} if self._placed else {"scheduling_strategy": "SPREAD"}
        )
        return task.options(**placement, **options)

    def _wait_for_all(self, refs: Sequence[Any]) -> list[Any]:
        """Wait for all tasks; return their results. Raise TrainyardError if an instance is lost."""
        waiting = [*refs]
        while waiting:
            waiting = self._wait_for_some(waiting, len(waiting))
        return ray.get([*refs])

    def _wait_for_some(self, refs: Sequence[Any], count: int = 1) -> list[Any]:
        """Wait for ``count`` tasks, or for LOST_LOOK_SECONDS; return the unfinished references.

        Raises:
            TrainyardError: an instance is lost, so its tasks would wait forever.
        """
        # Without fetch_local=False, Ray copies each result here before the task counts as done.
        _, waiting = ray.wait(
            [*refs], num_returns=count, timeout=LOST_LOOK_SECONDS, fetch_local=False
        )
        if self._placed and waiting:
            resources = ray.cluster_resources()
            if lost_hosts := [host for host in self._hosts if host not in resources]:
                raise TrainyardError(
                    f"{', '.join(lost_hosts)}: is lost, and with it its raw data and its part of "
                    "the output; see the log there, and run the step again"
                )
        return waiting

    def _list_objects(self) -> tuple[list[RawObject], list[list[RawObject]]]:
        """List the raw data of all instances, and check that they agree.

        Return all raw objects, and for each instance the raw objects, or parts of them, that it
        reads.
        """
        looks = [
            self._place_task(instance, ray_tasks.list_raw_data).remote(instance, self._hosts)
            for instance in self._instances
        ]
        states: list[HostState] = self._wait_for_all(looks)
        for host, state in zip(self._hosts, states, strict=True):
            if state.identity != states[0].identity:
                raise DataError(
                    f"{host}: has other settings than {self._hosts[0]}, so they are not "
                    "instances of one job; start all of them with the same ones"
                )
        folder, settings = arguments.find_input_folder(self._options), self._plan.settings_sha256
        if self._options.input:
            for host, state in zip(self._hosts, states, strict=True):
                if state.files != states[0].files:
                    raise DataError(
                        f"{folder}: {host} sees other files, sizes or times there than "
                        f"{self._hosts[0]}; the input has to be the same on all instances"
                    )
            objects = raw_objects.build_objects(folder, states[0].files, settings)
            parts = raw_objects.divide_objects(objects, len(states))
        else:
            self._check_disjoint(states)
            # Files of several instances can belong to one raw object. So the objects are formed
            # from all files first; then they do not depend on the number of instances.
            all_files = [file for state in states for file in state.files]
            objects = raw_objects.build_objects(folder, all_files, settings)
            files_by_name = [{file.name: file for file in state.files} for state in states]
            parts = [
                list(raw_objects.iter_own_objects(objects, files, settings))
                for files in files_by_name
            ]
        arguments.check_objects(objects, folder, self._options.inputs)
        self._check_disk_space(objects, parts, states)
        return objects, parts

    def _check_disjoint(self, states: Sequence[HostState]) -> None:
        """Raise DataError if two instances have the same file."""
        names: dict[str, str] = {}
        for host, state in zip(self._hosts, states, strict=True):
            for file in state.files:
                if first := names.get(file.name):
                    raise DataError(
                        f"{file.name}: {first} and {host} both have this file; the input's "
                        "S3DataDistributionType has to be ShardedByS3Key, or name a folder that "
                        "all instances see with --input"
                    )
                names[file.name] = host

    def _check_disk_space(
        self,
        objects: Sequence[RawObject],
        parts: Sequence[Sequence[RawObject]],
        states: Sequence[HostState],
    ) -> None:
        """Check that each instance's disk has room for its share, estimated from the raw sizes.

        Raises:
            TrainyardError: a disk is too small.
        """
        total = sum(raw.bytes for raw in objects)
        for host, part, state in zip(self._hosts, parts, states, strict=True):
            # Whichever is more: what the instance reads, or an even share of what is packed.
            share = max(sum(raw.bytes for raw in part), total // len(states))
            if state.free_bytes < COPIES * share:
                raise TrainyardError(
                    f"{host}: its output has room for {state.free_bytes / 1e9:,.1f} GB, expected "
                    f"at least {COPIES * share / 1e9:,.1f}: {COPIES} times this instance's part of "
                    f"the raw data, {share / 1e9:,.1f} of {total / 1e9:,.1f} GB; raise "
                    "shard.volume_gb or shard.instance_count"
                )

    def _read_objects(self, parts: Sequence[Sequence[RawObject]]) -> list[list[ReadResult]]:
        """Read all raw objects; return the progress records of each instance."""
        work = [(number, raw) for number, part in enumerate(parts) for raw in part]
        log.info("%d raw objects on %d instances", len(work), len(parts))
        results = self._wait_with_progress("raw objects", [
            (
                raw,
                self._place_task(self._instances[number], ray_tasks.read_raw_object).remote(
                    self._instances[number], raw
                ),
            )
            for number, raw in work
        ])  # fmt: skip
        reads: list[list[ReadResult]] = [[] for _ in parts]
        for (number, _), result in zip(work, results, strict=True):
            reads[number].append(result)
        return reads

    def _wait_with_progress(self, task_word: str, work: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Wait for all tasks, and log the progress; return their results.

        ``work`` contains for each task (raw object or unit, reference of the result).

        Raises:
            DataError: tasks failed because of their data; the message names them.
        """
        pace, tasks = (
            ProgressLogger(task_word, [t for t, _ in work]),
            {ref: task for task, ref in work},
        )
        waiting = [*tasks]
        while waiting:
            previous, waiting = waiting, self._wait_for_some(waiting)
            for ref in {*previous}.difference(waiting):
                pace.count_done(tasks[ref])
            pace.log_if_due()
        pace.log()
        # A task returns an error in its data as text, so that all such errors can be reported.
        results = ray.get([ref for _, ref in work])
        check_task_errors(sorted(result for result in results if isinstance(result, str)))
        return results

    def _survey_corpus(self, corpus: Corpus) -> Survey:
        """Find equal records across all instances, and mark on each the records to leave out.

        Return the survey, which counts the records that are kept.
        """
        records: Counter[int] = Counter()
        bytes_: Counter[int] = Counter()
        if not self._plan.identity:
            return corpus.build_survey(records, bytes_)
        # Put the corpus into the object store once, instead of sending it with each task.
        spans, corpus_ref = corpus.list_ranges(), ray.put(corpus)
        log.info("surveying %d ranges of hashes", len(spans))
        names = [[run.name for _, run in runs] for runs in corpus.runs]
        # For each range of hashes: the reference of its counts, then one per instance's mask.
        duplicates: list[Any] = []
        for span in spans:
            streams = [
                self._place_task(instance, ray_tasks.read_keys).remote(instance, own, span)
                for instance, own in zip(self._instances, names, strict=True)
            ]
            task = ray_tasks.find_duplicates.options(num_returns=1 + len(streams))
            duplicates.append(task.remote(corpus_ref, *streams))
        marks = [
            self._place_task(instance, ray_tasks.mark_left_out).remote(
                instance, runs, spans, *(refs[1 + number] for refs in duplicates)
            )
            for number, (instance, runs) in enumerate(
                zip(self._instances, self._list_own_runs(corpus), strict=True)
            )
        ]
        for counts in self._wait_for_all([refs[0] for refs in duplicates]):
            records.update(counts.records)
            bytes_.update(counts.bytes)
        # Wait for the marks before anything is gathered, because ``cut_spans`` reads them.
        self._wait_for_all(marks)
        return corpus.build_survey(records, bytes_)

    def _list_own_runs(self, corpus: Corpus) -> list[list[OwnRun]]:
        """Return for each instance (first folder, run, number of records before it) of its runs."""
        runs_by_place = []
        for runs in corpus.runs:
            own, record_count = [], 0
            for rank, run in runs:
                folder = corpus.objects[rank].folder if self._plan.by_folder else ""
                own.append((folder, run, record_count))
                record_count += run.records
            runs_by_place.append(own)
        return runs_by_place

    def _gather_records(
        self, corpus: Corpus, corpus_survey: Survey, units: Sequence[Sequence[PackingUnit]]
    ) -> None:
        """Send each record to the instance that packs it, wave by wave, and write the surveys."""
        spans = [ray_tasks.compute_spans(own) for own in units]
        waves = [_divide_into_waves(own) for own in self._list_own_runs(corpus)]
        count = max(map(len, waves))
        megabytes = sum(corpus_survey.bytes.values()) / 1e6
        log.info("gathering %.1f MB of records in %d waves", megabytes, count)
        runs: list[list[Any]] = [[] for _ in self._instances]
        previous: list[Any] = []
        for number in range(count):
            wave_runs = [own[number] if number < len(own) else [] for own in waves]
            refs = self._send_wave(number, wave_runs, spans)
            # The next wave was started before this waits for the previous one, so two waves are
            # sent at the same time.
            while previous:
                previous = self._wait_for_some(previous, len(previous))
            for place_runs, ref in zip(runs, refs, strict=True):
                place_runs.append(ref)
            previous = refs
        # A gathered run mixes raw objects. It gets the rank of any one in the same first folder.
        ranks = {
            counts.name.split("/")[0] if self._plan.by_folder else "": rank
            for rank, counts in enumerate(corpus_survey.objects)
        }
        surveys = []
        for instance, refs in zip(self._instances, runs, strict=True):
            gathered = [
                (f"{ray_tasks.GATHERED}/{run.name}", ranks[folder])
                for own_runs in self._wait_for_all(refs)
                for folder, run in own_runs
            ]
            own = corpus_survey.model_copy(update={"runs": gathered, "distinct": True})
            surveys.append((instance, own))
        # Instances delete the runs that they have read only now, when all have gathered.
        self._wait_for_all(
            [
                self._place_task(instance, ray_tasks.write_survey_and_delete_runs).remote(
                    instance, own
                )
                for instance, own in surveys
            ]
        )

    def _send_wave(
        self, number: int, wave_runs: Sequence[Sequence[OwnRun]], spans: Sequence[Sequence[Span]]
    ) -> list[Any]:
        """Start to send the given runs of each instance to all instances.

        Return for each instance the reference of the runs that it writes.
        """
        flat = [span for own in spans for span in own]
        pieces = []
        for instance, own in zip(self._instances, wave_runs, strict=True):
            if own and flat:
                task = self._place_task(instance, ray_tasks.cut_spans, num_returns=len(flat))
                cuts = task.remote(instance, own, flat)
                # Ray returns a list of references only if a task has several results.
                pieces.append(cuts if len(flat) > 1 else [cuts])
        gathered, first = [], 0
        for instance, own in zip(self._instances, spans, strict=True):
            columns = [cuts[first + n] for n in range(len(own)) for cuts in pieces]
            first += len(own)
            task = self._place_task(instance, ray_tasks.gather_spans)
            gathered.append(task.remote(instance, number, own, *columns))
        return gathered

    def _pack_units(
        self, units: Sequence[Sequence[PackingUnit]]
    ) -> list[Mapping[PackingUnit, PackedUnit]]:
        """Pack all units; return each instance's units with their progress records."""
        work = [(number, unit) for number, own in enumerate(units) for unit in own]
        log.info("%d units on %d instances", len(work), len(units))
        results = self._wait_with_progress("units", [
            (
                unit,
                self._place_task(self._instances[number], ray_tasks.pack_unit_on).remote(
                    self._instances[number], unit
                ),
            )
            for number, unit in work
        ])  # fmt: skip
        packed_units: list[dict[PackingUnit, PackedUnit]] = [{} for _ in units]
        for (number, unit), result in zip(work, results, strict=True):
            packed_units[number][unit] = result
        return [*packed_units]


def _divide_into_waves(runs: Sequence[OwnRun]) -> list[list[OwnRun]]:
    """Divide an instance's runs into waves of about WAVE_BYTES each."""
    waves: list[list[OwnRun]] = []
    size = WAVE_BYTES
    for run in runs:
        if size >= WAVE_BYTES:
            waves.append([])
            size = 0
        waves[-1].append(run)
        size += run[1].bytes
    return waves or [[]]
