"""Compute the rows of a model's scores, in as many processes as there are GPUs.

Each process opens the model on its own GPU, scores a share of the split's batches, and writes its
rows to a file. The job reads the files one after the other, so it needs no more memory than with
one process. The rows are the same, bit for bit, for any number of processes: shares are cut between
batches, and on CPUs the number of threads per process depends only on the model (on a small machine
it may be smaller), because the number of threads that share a product may change its last bits.
"""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from conditions.no_champion import NONE, UNRESOLVED_ARN
from steps.evaluate.evaluation_document import Artifact
from steps.evaluate.model_folder import find_model_folder, fingerprint_model
from steps.evaluate.score_table import read_part, write_part
from steps.installed import WorkerProcess
from training.cpu_cores import ON_THIS_MACHINE, limit_torch_threads
from training.data.dataset import Dataset, Share
from training.export.artifact import load_artifact
from training.scores import Block
from training.weights.finetuning import base_model, hugging_face_folder
from training.weights.starting_weights import BASE
from training.workloads import Packing, Workload, load_workload, takes_share
from trainyard.common.errors import DataError, TrainyardError
from trainyard.common.process import count_cores

# Open a model that is given as an archive, or as files; the same for challenger and champion.


@dataclass(frozen=True)
class Source:
    """Location of a model: only paths and strings, so that it can be passed to another process."""

    folder: Path
    """Folder with its unpacked files; or with a base model in any form, if ``uri`` is set."""
    base: Path | None = None
    """Folder with the model to which its adapters belong, if the files are only adapters."""
    uri: str | None = None
    """URI of a base model, from which a training run started; None for a trained model."""

    def load_model(self, workload: Workload, name: str) -> nn.Module:
        """Return the model in evaluation mode, on the CPU; ``name`` is the workload's.

        Raises:
            DataError: the model is damaged, or another workload's.
        """
        if self.uri is None:
            return load_artifact(self.folder, self.base)[1]
        model = workload.model()
        base_model.fill_model(model, workload, name, self.folder, self.uri)
        return model.eval()


@dataclass(frozen=True)
class TrainedModel:
    """A model, and the description in its files."""

    workload: Workload
    model: nn.Module
    description: dict[str, Any]
    """Content of its config.json."""
    artifact: Artifact
    """Size and hash of its files, as they will be registered."""
    source: Source


def open_trained_model(
    folder: Path, workload: str | None = None, base: Path | None = None
) -> TrainedModel:
    """Open the trained model in the folder, which may be an archive, on the CPU.

    Args:
        workload: name that its workload must have; None for any.
        base: folder with the model to which its adapters belong, if it is only adapters.

    Raises:
        TrainyardError: the model is missing, damaged, or of another workload.
    """
    files = find_model_folder(folder, folder / "model")
    if workload is not None:
        # Checked before anything that the archive names is imported.
        _check_workload(files / "config.json", workload)
    return TrainedModel(*load_artifact(files, base), fingerprint_model(folder), Source(files, base))


def _check_workload(path: Path, workload: str) -> None:
    """Raise DataError unless the model's description at ``path`` names ``workload``."""
    try:
        name = json.loads(path.read_bytes())["workload"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is missing or damaged: {error!r}") from None
    if name != workload:
        raise DataError(f"the model is of workload {name!r}; expected {workload!r}")


# The champion comes from outside this execution: an error in it becomes a reason for the gate to
# reject, and never ends the job.


def open_champion(
    folder: Path, arn: str, challenger: TrainedModel, base: Path | None = None
) -> tuple[TrainedModel | None, str | None]:
    """Return (the champion, None), (None, why it cannot be compared), or (None, None) if there is
    no champion.

    Args:
        folder: folder with its model.tar.gz or its files, or with no-champion.json.
        arn: ARN of its model package, ``none`` or ``unresolved``.
        base: folder with the challenger's base model, which a champion of adapters may share.
    """
    if arn in (NONE, UNRESOLVED_ARN):
        return None, None
    try:
        return _open_champion_folder(folder, challenger, base), None
    except TrainyardError as error:
        return None, f"champion {arn} cannot be compared: {error}"


def _open_champion_folder(
    folder: Path, challenger: TrainedModel, base: Path | None
) -> TrainedModel:
    """Return the champion in the folder; raise TrainyardError if it cannot be compared."""
    if (folder / "no-champion.json").exists():
        raise DataError("the parameter ChampionModelUri names no folder with its model")
    if (base_champion := _open_base_champion(folder, challenger)) is not None:
        return base_champion
    champion = open_trained_model(folder, challenger.description["workload"], base)
    own_packing, champion_packing = challenger.workload.packing, champion.workload.packing
    if (own_packing.fields, own_packing.info) != (champion_packing.fields, champion_packing.info):
        raise DataError(
            f"the model takes samples {_format_fields(champion_packing)}; the test split contains "
            "samples "
            f"{_format_fields(own_packing)}"
        )
    return champion


def _open_base_champion(folder: Path, challenger: TrainedModel) -> TrainedModel | None:
    """Return the champion if it is the challenger's own base model, otherwise None.

    A base model takes the challenger's samples, whatever it was trained on.
    """
    base = challenger.description.get(BASE)
    if base is None or hugging_face_folder.hash_model_files(folder) != base["sha256"]:
        return None
    workload, name = challenger.workload, challenger.description["workload"]
    source = Source(folder, uri=base["uri"])
    model = source.load_model(workload, name)
    return TrainedModel(workload, model, {"workload": name}, fingerprint_model(folder), source)


def _format_fields(packing: Packing) -> str:
    fields = ", ".join(f"{n} {f.dtype} {f.shape}" for n, f in packing.fields.items())
    return f"{fields} made for {packing.info}"


log = logging.getLogger(__name__)

THREADS = 4
"""Threads of a process on CPUs, for a model larger than SMALL."""
SMALL = 2**28
"""Bytes of weights up to which each core gets a process, and so a copy of the model, of its own.
The products of a small model are too short to be shared by threads, which would mostly wait for
each other.
"""
WORTH, WORTH_GPU = 10**11, 10**12
"""Number of operations above which starting another process pays off: per thread on CPUs (about
three seconds of a core), and on a GPU, which takes longer to start.
"""


@dataclass(frozen=True)
class Scoring:
    """All that another process needs in order to score one model."""

    name: str
    """Name of the table of scores."""
    workload: str
    config: Mapping[str, Any]
    assets: Path
    """Files of the challenger, whose workload defines the slices."""
    source: Source
    """The model to be scored."""
    test: Path
    slices: tuple[str, ...] = ()


def compute_rows(
    scoring: Scoring,
    challenger: TrainedModel,
    model: Callable[[], nn.Module],
    test: Dataset,
    folder: Path,
    process_count: int | None,
) -> Iterator[Block]:
    """Yield the scores of all rows in order; ``model`` loads the model, if this process needs it.

    Args:
        folder: is created; contains the processes' files while they are needed.
        process_count: number of processes; None for as many as are useful.

    Raises:
        TrainyardError: a process failed; contains its reason. The others are killed.
    """
    workload = challenger.workload
    if not takes_share(workload):
        log.info(
            "%s: one process, because the workload's scores() cannot compute a share", scoring.name
        )
        yield from workload.scores(place_model(model()), test, scoring.slices)
        return
    count = process_count or choose_process_count(challenger.model, test)
    log.info("%s: processes: %d, samples: %d", scoring.name, count, len(test))
    if count == 1:
        placed_model = place_model(model())
        with _limit_threads(placed_model):
            yield from workload.scores(placed_model, test, scoring.slices)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".parts-", dir=folder) as parts:
        files = [Path(parts) / f"{index}.arrow" for index in range(count)]
        tasks = [(scoring, Share(index, count), file) for index, file in enumerate(files)]
        with closing(
            run_in_order(f"{scoring.name}: process", _score_share, tasks, files)
        ) as part_files:
            for file in part_files:
                yield from read_part(file)
                file.unlink()


def choose_process_count(model: nn.Module, test: Dataset) -> int:
    """Return the useful number of processes: one per GPU, or one per as many cores as a process has
    threads; fewer if there is little to compute.

    The operations are estimated as two for each parameter and stored byte, a guess that no small
    split exceeds.
    """
    operations = 2 * sum(parameter.numel() for parameter in model.parameters()) * test.bytes
    maximum, worth = torch.cuda.device_count(), WORTH_GPU
    if not maximum:
        maximum, worth = (
            count_cores() // choose_thread_count(model),
            WORTH * choose_thread_count(model),
        )
    return max(1, min(maximum, -(-operations // worth)))


def choose_thread_count(model: nn.Module) -> int:
    """Return the number of threads with which a process computes the model on CPUs."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return 1 if weights <= SMALL else THREADS


def place_model(model: nn.Module, index: int = 0) -> nn.Module:
    """Move the model to a GPU, which becomes the current one, or leave it on the CPU; return it."""
    if not (device_count := torch.cuda.device_count()):
        return model
    torch.cuda.set_device(index % device_count)
    return model.to("cuda")


@contextmanager
def _limit_threads(model: nn.Module) -> Iterator[None]:
    """On CPUs, limit torch's threads in the block, regardless of the number of processes."""
    own_count = torch.get_num_threads()
    if not torch.cuda.is_available():
        torch.set_num_threads(min(own_count, choose_thread_count(model)))
    try:
        yield
    finally:
        torch.set_num_threads(own_count)


def _score_share(scoring: Scoring, share: Share, file: Path) -> None:
    """Score a share of the test split in a worker process, and write the rows to ``file``."""
    # Decoding threads share the cores among the processes; the number of torch's threads must not
    # depend on the number of processes.
    limit_torch_threads({})
    os.environ[ON_THIS_MACHINE[0]] = str(share.count)
    workload = load_workload(scoring.workload, scoring.config, scoring.assets)
    model = place_model(scoring.source.load_model(workload, scoring.workload), share.index)
    with _limit_threads(model):
        blocks = workload.scores(model, Dataset(scoring.test), scoring.slices, share)
        write_part(file, blocks)


Result = TypeVar("Result")


def run_in_order(
    label: str,
    work: Callable[..., None],
    tasks: Sequence[tuple[Any, ...]],
    results: Sequence[Result],
) -> Generator[Result, None, None]:
    """Run ``work(*task)`` in a process for each task; yield each result once it and all earlier
    ones are done.

    Args:
        label: name of a process, followed by its number from 1.
        work: a function of a module, with arguments that can be pickled.
        results: result of each task, which is yielded when the task is done.

    Raises:
        TrainyardError: a process failed or died; contains its name.
        RuntimeError: a bug; contains the process's traceback.
    """
    crew: list[_Process] = []
    try:
        for number, task in enumerate(tasks, 1):
            crew.append(_Process(f"{label} {number} of {len(tasks)}", work, task))
        for process, result in zip(crew, results, strict=True):
            while not process.is_done:
                # Wait for any process, so that one that fails or dies is detected at once.
                busy = [other for other in crew if not other.is_done]
                ready = wait([other.worker.pipe for other in busy])
                for other in busy:
                    if other.worker.pipe in ready:
                        other.receive_message()
            yield result
    finally:
        for process in crew:
            process.worker.end()


class _Process:
    """A worker process with a name, which reports when it is done."""

    def __init__(self, name: str, work: Callable[..., None], task: tuple[Any, ...]) -> None:
        self.name, self.is_done = name, False
        self.worker = WorkerProcess(_run_worker, work, task)

    def receive_message(self) -> None:
        """Receive the process's last message.

        Raises:
            TrainyardError: the process failed or died; contains its name.
            RuntimeError: a bug; contains the process's traceback.
        """
        try:
            self.is_done = self.worker.receive(_explain_death)
        except (TrainyardError, RuntimeError) as error:
            raise type(error)(f"{self.name}: {error}") from None


def _explain_death(end: str) -> str:
    """Return the error message for a process that died; ``end``: the cause, such as ``SIGKILL``."""
    return (
        f"died ({end}). SIGKILL most often means out of memory: use an instance type with more "
        "memory, or lower evaluate.processes"
    )


def _run_worker(pipe: Connection, work: Callable[..., None], task: tuple[Any, ...]) -> None:
    """Run ``work(*task)`` in the worker process, and report through the pipe that it is done."""
    work(*task)
    pipe.send(True)
