"""Save checkpoints that are either complete or ignored, and resume the newest complete one.

    <checkpoints>/<identity>/step-00000500/shard-00001-….safetensors   what a rank wrote
                                           shard-00001-….sha256        hashes of its blocks
                                           shard-00002-….safetensors
                                           complete.json               last: what is in which file

A save pauses the training only for a copy in memory, which another process writes to the disk. A
tensor that several ranks hold is written by one of them. A training run with another number of
ranks or another strategy reads only the slices that it needs, and verifies these. So the work of a
rank grows with its part of the model, not with the whole model.

SageMaker copies the folder to S3 while it grows, in any order, so a marker alone proves nothing:
its hashes have to match the files in the same folder. A machine that was not restarted has only the
files of its own ranks; missing ones are read from the other machines.
"""

import itertools
import logging
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from training.checkpoint import find_files, marker, read_slices, save
from training.checkpoint.block_hashes import DamagedFile
from training.checkpoint.marker import Lineage, Marker
from training.checkpoint.rendezvous import LoneRank, StoreExchange
from training.checkpoint.save import Share
from training.in_place_restart import Attempt
from training.strategies.ranks import Ranks, connect_store, is_lost_peer_error
from training.weights.starting_weights import Start
from trainyard.common.errors import LostRankError, TrainingError

log = logging.getLogger(__name__)

NUMBERS = itertools.count()
"""Counts the ``Checkpoints`` objects in this process. Every rank creates them in the same order, so
equal numbers name the same object.
"""


class Checkpoints:
    """Save and resume the checkpoints of one training run.

    Args:
        folder: /opt/ml/checkpoints, which SageMaker keeps in step with S3.
        name: the training's identity; checkpoints of other identities are left alone.
        keep: how many of the newest complete checkpoints are kept, in addition to the best one.
        timeout_seconds: how long a rank waits for the others while no rank makes progress.
        lineage: this process's lineage; if given, only a checkpoint of the same identity is
            resumed.
        start: checkpoint to begin with if none is found; a model to start from is not handled here.

    Attributes:
        lineage: this process's lineage, preceded by that of the resumed checkpoint.
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
        self._meeting = _create_exchange(ranks, timeout_seconds)
        self._share: Share | None = None
        self._release: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._complete_step = 0
        """The step of the newest complete checkpoint."""

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Wait for the last save, then end the writing process and free its memory."""
        # A waiting thread would otherwise wait its full patience for a rank that is known to be
        # gone.
        if is_lost_peer_error(error):
            self._meeting.give_up()
        try:
            self.finish()
        except TrainingError as failure:
            if kind is None:
                raise
            log.warning("%s", failure)  # same cause as the training's error, or caused by it
        finally:
            self._release()
            self._share = None

    def save(self, step: int, state: dict[str, Tensor], loss: float | None = None) -> None:
        """Copy the state and have it written in the background. Collective: call it on every rank.

        Args:
            loss: the validation loss at this step, if known; the checkpoint with the lowest one is
                kept.

        Raises:
            TrainingError: the previous save could not be written, or the state has other tensors
                than at the first save.
        """
        # One image (the copy in memory) holds one save: the previous one must be written first.
        self.finish()
        parts = save.build_parts(state)
        if self._share is None:  # the ranks agree on the shares at the first save
            self._share = Share(self._meeting, parts, self._ranks.device)
            self._release = weakref.finalize(self, self._share.close)
        if self._share.parts != parts:
            before, now = ({*mapping.items()} for mapping in (self._share.parts, parts))
            name = min(name for name, _ in before ^ now)
            raise TrainingError(
                f"{name}: has another type or shape than at the first checkpoint, or did not "
                "exist then, so no checkpoint could be resumed; let Workload.model create each "
                "weight and buffer "
                "with the shape that it keeps"
            )
        share = self._share
        wait_for_copy = share.image.copy(state) if share.image else lambda: None
        metadata = Marker(step=step, validation_loss=loss, files={}, lineage=self.lineage)
        self._thread = threading.Thread(
            target=self._write_or_fail,
            args=(share, wait_for_copy, metadata),
            name="checkpoint",
            daemon=True,
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last save is complete on every rank.

        Raises:
            TrainingError: the checkpoint could not be written.
            LostRankError: a rank is gone.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            if isinstance(failure, LostRankError) or is_lost_peer_error(failure):
                raise failure
            raise TrainingError(
                f"{self._folder}: a checkpoint could not be written: {failure}; the previous one "
                "is intact, and a job with the same code, settings and data continues from it"
            ) from failure

    def collect_metrics(self, step: int) -> dict[str, float]:
        """Return fields for a metric line: unsaved steps, and whether a save failed."""
        return {
            "unsaved_steps": step - self._complete_step,
            "checkpoint_failures": int(self._failure is not None),
        }

    def resume(self, state: Callable[[], dict[str, Tensor]]) -> int | None:
        """Load the newest complete checkpoint into the state's tensors and return its step.

        Without one, begin with the recipe's ``start_from`` checkpoint; return None if there is none
        either. Collective: call it on every rank; all load the same checkpoint. ``state`` is called
        only if there is a checkpoint to load. Shards in its folder that its marker does not list
        are deleted.
        """
        meeting, tensors = self._meeting, None
        entries = find_files.survey_checkpoints(self._folder) if self._manages_folder else []
        for candidate in find_files.gather_candidates(meeting, entries):
            folder = marker.build_folder_path(self._folder, candidate.step)
            try:
                if candidate.damage:
                    raise DamagedFile(candidate.damage)
                metadata = find_files.relay_marker(meeting, candidate, folder)
                if self._is_foreign(candidate.step, metadata):
                    continue
                tensors = state() if tensors is None else tensors
                self._load(folder, metadata, tensors)
            except DamagedFile as torn:
                self._log_warning(
                    "checkpoint %s is damaged: %s: not resumed, looking for an older one",
                    folder,
                    torn,
                )
                continue
            # SageMaker restores deleted files from S3, so remove what the marker does not list.
            for stray in (
                marker.list_unlisted_files(folder, metadata) if self._manages_folder else []
            ):
                save.remove_path(folder / stray)
            self._adopt_checkpoint(candidate.step, metadata)
            return candidate.step
        if self._ranks.rank == 0 and self.lineage is not None:
            for stranger in marker.iter_foreign_run_messages(self._folder, self.lineage.parts):
                log.warning("%s", stranger)
        return None if self._start is None else self._load_start(self._start, state)

    def _load_start(self, start: Start, state: Callable[[], dict[str, Tensor]]) -> int | None:
        """Load the checkpoint that the recipe starts from; return its step, or None if it starts
        from a model.

        Raises:
            TrainingError: a file is damaged, or the state belongs to another model or optimizer.
        """
        if start.metadata is None:
            return None
        setting = f"start_from.checkpoint {start.start_from.checkpoint}"
        if (
            extra_files := marker.list_unlisted_files(start.folder, start.metadata)
            if self._manages_folder
            else []
        ):
            raise TrainingError(
                f"{setting}: {extra_files[0]} does not belong to this checkpoint; remove it"
            )
        try:
            self._load(start.folder, start.metadata, state())
        except DamagedFile as torn:
            raise TrainingError(f"{setting}: {torn}; name an older checkpoint") from None
        # A lost rank says nothing about the checkpoint, so its error passes unchanged.
        except LostRankError:
            raise
        except TrainingError as error:
            raise TrainingError(
                f"{setting}: does not fit this model and optimizer: {error}; use the model and "
                "optimizer settings with which it was trained, or start from its weights only: "
                "start_from.model"
            ) from error
        self._adopt_checkpoint(start.metadata.step, start.metadata)
        return start.metadata.step

    def _is_foreign(self, step: int, metadata: Marker) -> bool:
        """Return whether the checkpoint belongs to another training run; warn if it does."""
        if self.lineage is None:
            return False
        if metadata.lineage is None:
            differs = "its marker does not say what it was trained with"
        elif differences := self.lineage.parts.describe_differences(metadata.lineage.parts):
            differs = f"it is another training's: {'; '.join(differences.values())}"
        else:
            return False
        folder = marker.build_folder_path(self._folder, step)
        self._log_warning("checkpoint %s is not resumed: %s", folder, differs)
        return True

    def _log_warning(self, message: str, *args: object) -> None:
        """Log the warning on rank 0 only."""
        if self._ranks.rank == 0:
            log.warning(message, *args)

    def _adopt_checkpoint(self, step: int, metadata: Marker) -> None:
        """Continue the step count and the lineage of the checkpoint that was just loaded."""
        self._complete_step = step
        if self.lineage is not None and metadata.lineage is not None:
            self.lineage = self.lineage.resume_at(step, metadata.lineage)

    @property
    def _manages_folder(self) -> bool:
        """True if this rank manages its machine's checkpoint folder: it is local rank 0."""
        return self._ranks.local_rank == 0

    # Writing.

    def _write_or_fail(
        self, share: Share, wait_for_copy: Callable[[], None], metadata: Marker
    ) -> None:
        """Write the checkpoint, in a background thread; keep an error for ``finish`` to raise."""
        try:
            wait_for_copy()
            target = marker.build_folder_path(self._folder, metadata.step)
            save.write_checkpoint(
                share, self._meeting, target, self._manages_folder, metadata, self._keep
            )
            self._complete_step = metadata.step
        except Exception as error:  # noqa: BLE001  ``finish`` raises it in the training's thread
            self._failure = error

    # Reading.

    def _load(self, folder: Path, metadata: Marker, state: dict[str, Tensor]) -> None:
        """Read this rank's slices; write them into the tensors once all ranks have read theirs.

        Raises:
            DamagedFile: a file is missing or was changed since it was written; raised on every
            rank. TrainingError: the checkpoint does not fit the state; raised on every rank.
        """
        meeting, ranks = self._meeting, self._ranks
        lead = ranks.rank - ranks.local_rank
        files = find_files.locate_files(meeting, folder, metadata, lead)
        read: dict[str, Tensor] = {}
        problem: list[str] = []
        # Exchange the outcomes before raising: a rank that raised alone would leave the others
        # waiting.
        try:
            read = read_slices.read_local_parts(
                state, files, ranks.local_rank, meeting.report_progress
            )
        except DamagedFile as torn:
            problem = ["torn", str(torn)]
        except TrainingError as error:
            problem = ["wrong", str(error)]
        try:
            wrong = meeting.decide_together(
                problem, lambda problems: next(filter(None, problems), None)
            )
        finally:
            # Close only now: until here another rank may still be reading from this machine.
            files.close()
        if wrong:
            raise (DamagedFile if wrong[0] == "torn" else TrainingError)(wrong[1])
        read_slices.commit_to_state(state, read)


def _create_exchange(ranks: Ranks, patience_seconds: float) -> StoreExchange | LoneRank:
    """Return the exchange between the ranks, over a new connection to the job's store."""
    if ranks.world == 1:
        return LoneRank()
    # The agent's store survives a restart of the ranks, so each attempt uses its own keys.
    name = f"checkpoints-{Attempt.from_environment().number}-{next(NUMBERS)}"
    store = dist.PrefixStore(name, connect_store(patience_seconds))
    return StoreExchange(store, ranks.rank, ranks.world, patience_seconds)
