"""Checkpoints that are whole or not there, and the way back to the newest whole one.

    <checkpoints>/<identity>/step-00000500/shard-00001-….safetensors   what a rank wrote, and where
                                           shard-00002-….safetensors   in each tensor it belongs
                                           complete.json               every file's hash, last

Written by torch.distributed.checkpoint while the training goes on: a save only stops it for a copy
in memory. Each rank writes its part, and a training of other ranks or another strategy reads the
parts that it needs.

SageMaker copies the folder to S3 while it grows, in any order, so a marker alone proves nothing:
its hashes have to match the files beside it. On a machine that was not restarted there are only the
files of its own ranks: the others send what is missing.
"""

import logging
import shutil
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from training import marker, whole_checkpoint
from training.lineage import Lineage
from training.marker import Marker
from training.start import Start
from training.strategies.ranks import Ranks, is_lost_peer
from trainyard.common import whole_file
from trainyard.common.errors import TrainingError
from trainyard.common.hashes import file_sha256

log = logging.getLogger(__name__)
# What a single process means by no_dist, and need not be told of.
warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")

CHUNK = 64 * 2**20  # bytes that are sent at once
FILES = 16  # of a rank in a checkpoint, or a few more
SMALLEST = 16 * 2**20  # bytes below which a file is not cut


class Checkpoints:
    """The checkpoints of one training.

    Args:
        folder: /opt/ml/checkpoints, which SageMaker keeps in step with S3.
        name: the training's identity; others' checkpoints are left alone.
        keep: how many complete checkpoints stay, beside the best one.
        timeout_seconds: how long a rank waits for the others.
        lineage: of this process; only a checkpoint of the same identity is resumed then.
        start: what to begin with where there is none; a model is not for here.

    Attributes:
        lineage: with that of the checkpoint that was resumed before it.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        keep: int,
        ranks: Ranks,
        timeout_seconds: int = 120,
        *,
        lineage: Lineage | None = None,
        start: Start | None = None,
    ) -> None:
        self._folder, self._keep, self._ranks = folder / name, keep, ranks
        self.lineage, self._start = lineage, start
        self._staged: dict[str, Tensor] = {}
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        # Of its own: the training's collectives go on while a checkpoint is written.
        timeout = timedelta(seconds=timeout_seconds)
        self._alone = ranks.world == 1
        own = ranks.subgroups and not self._alone
        self._group = dist.new_group(backend="gloo", timeout=timeout) if own else None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the last save: a process that ends before its thread does is aborted."""
        if kind is None:
            return self.finish()
        try:
            self.finish()
        except TrainingError as error:  # of what the training failed with, or because of it
            log.warning("%s", error)

    def save(self, step: int, state: dict[str, Tensor], loss: float | None = None) -> None:
        """Copy the state, and write it in the background. Every rank calls it.

        Args:
            loss: the validation loss at this step, if known; the lowest one's checkpoint is kept.

        Raises:
            TrainingError: the save before could not be written.
        """
        self.finish()
        with torch.no_grad():
            for name, tensor in state.items():
                if name not in self._staged:
                    self._staged[name] = tensor.detach().to("cpu", copy=True)
                else:
                    _local(self._staged[name]).copy_(_local(tensor))
        if not self._ranks.subgroups:  # the training's collectives would mix with these
            return self._write_or_fail(step, loss)
        self._thread = threading.Thread(
            target=self._write_or_fail, args=(step, loss), name="checkpoint", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last save is complete.

        Raises:
            TrainingError: it could not be written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise TrainingError(
                f"{self._folder}: a checkpoint could not be written: {failure}; what it was before "
                "is intact, and a job with the same code, settings and data goes on from it"
            ) from failure

    def resume(self, state: Callable[[], dict[str, Tensor]]) -> int | None:
        """Write the newest whole checkpoint into the state's tensors; its step, None without one.

        Every rank calls it; they agree on the checkpoint. ``state`` is called if there is one.
        """
        mine = marker.steps(self._folder) if self._leads else []
        found = sorted({step for steps in self._ranks.gather(mine) for step in steps}, reverse=True)
        for step in found:
            said = self._completed(step)
            if said is not None and not self._is_foreign(step, said):
                self._load(self._at(step), state())
                self._went_on(step, said)
                return step
            if said is None and self._ranks.rank == 0:
                torn = self._at(step)
                log.warning("checkpoint %s is torn: not resumed, looking for an older one", torn)
        if self._ranks.rank == 0 and self.lineage is not None:
            for stranger in marker.strangers(self._folder, self.lineage.parts):
                log.warning("%s", stranger)
        return None if self._start is None else self._begin(self._start, state)

    def _begin(self, start: Start, state: Callable[[], dict[str, Tensor]]) -> int | None:
        """Load what the recipe asks to go on from; its step, None for a model.

        Raises:
            TrainingError: a file is torn, or the state is another model's or optimizer's.
        """
        from torch.distributed.checkpoint import CheckpointException

        if start.said is None:
            return None
        problems = self._ranks.gather(
            marker.torn(start.folder, start.said) if self._leads else None
        )
        if found := next(filter(None, problems), None):
            raise TrainingError(f"start_from.checkpoint {start.asked.checkpoint}: {found}")
        try:
            self._load(start.folder, state())
        except (CheckpointException, RuntimeError, ValueError, KeyError, TrainingError) as error:
            if is_lost_peer(error):
                raise
            raise TrainingError(
                f"start_from.checkpoint {start.asked.checkpoint}: does not fit this model and "
                f"optimizer: {_last_line(error)}; set the model and the optimizer as they were "
                "there, or begin with its weights alone: start_from.model"
            ) from error
        self._went_on(start.said.step, start.said)
        return start.said.step

    def _is_foreign(self, step: int, said: Marker) -> bool:
        """Whether another training's checkpoint lies in this one's folder; that is told."""
        if self.lineage is None:
            return False
        if said.lineage is None:
            differs = "its marker does not say what it was trained with"
        elif found := self.lineage.parts.differences(said.lineage.parts):
            differs = f"it is another training's: {'; '.join(found.values())}"
        else:
            return False
        if self._ranks.rank == 0:
            log.warning("checkpoint %s is not resumed: %s", self._at(step), differs)
        return True

    def _went_on(self, step: int, said: Marker) -> None:
        if self.lineage is not None and said.lineage is not None:
            self.lineage = self.lineage.after(step, said.lineage)

    @property
    def _leads(self) -> bool:
        """Whether this rank looks after its machine's folder."""
        return self._ranks.local_rank == 0

    def _at(self, step: int) -> Path:
        return marker.folder_of(self._folder, step)

    # writing: in the background

    def _write_or_fail(self, step: int, loss: float | None) -> None:
        try:
            self._write(step, loss)
        except Exception as error:  # noqa: BLE001  the training's thread raises it
            self._failure = error

    def _write(self, step: int, loss: float | None) -> None:
        """Every rank's part, then the marker, then delete what need not be kept."""
        target = self._at(step)
        if self._leads:  # before any rank writes: that takes every rank's plan
            _clear(target)
            target.mkdir(parents=True, exist_ok=True)
        self._write_tensors(target)
        own = f"shard-{self._ranks.rank + 1:05d}-*"
        hashes = {path.name: file_sha256(path) for path in target.glob(own)}
        files = {n: h for part in self._gather(hashes) for n, h in part.items()}
        if self._leads:
            said = Marker(
                step=step,
                validation_loss=loss,
                files=dict(sorted(files.items())),
                lineage=self.lineage,
            )
            whole_file.write(target / marker.NAME, said.model_dump_json(indent=1))
            self._prune()

    def _write_tensors(self, target: Path) -> None:
        from torch.distributed import checkpoint as dcp

        if not hasattr(dcp, "HuggingFaceStorageWriter"):
            return whole_checkpoint.write(target, self._staged, self._ranks.rank)
        sizes = {name: _local(tensor).nbytes for name, tensor in self._staged.items()}
        every = {n: size for part in self._gather(sizes) for n, size in part.items()}
        writer = dcp.HuggingFaceStorageWriter(
            str(target), save_distributed=True, fqn_to_index_mapping=_files(every)
        )
        dcp.save(
            self._staged,
            storage_writer=writer,
            process_group=self._group,
            no_dist=self._alone,
        )

    def _gather(self, value: Any) -> list[Any]:
        if self._alone:
            return [value]
        every: list[Any] = [None] * self._ranks.world
        dist.all_gather_object(every, value, group=self._group)
        return every

    def _prune(self) -> None:
        """Keep the newest ``keep`` complete checkpoints, and the best one."""
        steps = marker.steps(self._folder)
        said = {step: marker.read(self._at(step)) for step in steps}
        scored = {
            n: m.validation_loss for n, m in said.items() if m and m.validation_loss is not None
        }
        keep = {*steps[-self._keep :], *([min(scored, key=scored.__getitem__)] if scored else [])}
        for step in {*steps} - keep:
            (self._at(step) / marker.NAME).unlink()  # first: half deleted must not look complete
            shutil.rmtree(self._at(step))

    # reading

    def _completed(self, step: int) -> Marker | None:
        """Its marker, when all files of a checkpoint are whole here, or came from the others."""
        target = self._at(step)
        mine = marker.read(target) if self._leads else None
        markers = [one for one in self._ranks.gather(mine) if one]
        if not markers:
            return None
        files = markers[0].files
        whole = marker.intact(target, markers[0]) if self._leads else []
        have = self._ranks.gather(whole if self._leads else None)
        if {name for names in have if names for name in names} != {*files}:
            return None
        for name in sorted(files):
            if any(names is not None and name not in names for names in have):
                first = next(rank for rank, names in enumerate(have) if names and name in names)
                self._send(target / name, first, name not in whole)
        if self._leads:
            for stray in {path.name for path in target.glob("*.safetensors")} - {*files}:
                _clear(target / stray)  # of an earlier attempt: the reader takes all there are
        self._ranks.gather(None)  # nobody reads before everything is there
        return markers[0]

    def _send(self, path: Path, source: int, lacks: bool) -> None:
        """Rank ``source``'s file to the machines that lack it; every rank takes part."""
        mine = self._ranks.rank == source
        size = self._ranks.gather(path.stat().st_size if mine else 0)[source]
        receives = self._leads and lacks
        path.parent.mkdir(parents=True, exist_ok=True)
        log.info("%s: comes from rank %d", path, source)
        with (
            path.open("rb") if mine else whole_file.Draft(path) if receives else nullcontext()
        ) as file:
            for start in range(0, size, CHUNK):
                length = min(CHUNK, size - start)
                chunk = bytearray(file.read(length)) if mine else bytearray(length)
                part = torch.frombuffer(chunk, dtype=torch.uint8)
                sent = part if self._ranks.subgroups else part.to(self._ranks.device)
                dist.broadcast(sent, source, self._group)
                part.copy_(sent)
                if receives:
                    file.write(chunk)

    def _load(self, folder: Path, state: dict[str, Tensor]) -> None:
        from torch.distributed import checkpoint as dcp

        if not hasattr(dcp, "HuggingFaceStorageReader"):
            return whole_checkpoint.read(folder, state)
        dcp.load(
            state,
            storage_reader=dcp.HuggingFaceStorageReader(str(folder)),
            process_group=self._group,
            no_dist=self._alone,
        )


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[-1]


def _files(sizes: dict[str, int]) -> dict[str, int]:
    """Name → number of the file, from 1, that a rank's part of the tensor goes to.

    torch's writer has a file in memory twice before it writes it, so a file is small: a sixteenth
    of the bytes, or one tensor.
    """
    most = max(SMALLEST, sum(sizes.values()) // FILES)
    numbers, number, filled = {}, 1, 0
    for name, size in sizes.items():
        if filled and filled + size > most:
            number, filled = number + 1, 0
        numbers[name], filled = number, filled + size
    return numbers


def _clear(path: Path) -> None:
    """Make place: a folder goes with all that is in it, and so does a file of that name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _local(tensor: Tensor) -> Tensor:
    """This rank's part of a DTensor."""
    return getattr(tensor, "_local_tensor", tensor)
