"""One save: from a copy of the state in memory to the marker of a complete checkpoint.

There are three rounds, in the background and through the store: every rank waits until the folder
is clear, until every file is written, and until the marker is. Rank 0 gets a hash from each rank;
each machine gets the marker once.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.checkpoint import marker
from training.checkpoint.marker import FORMAT, CheckpointFile, Marker
from training.checkpoint.read_slices import Image, build_part
from training.checkpoint.rendezvous import LoneRank, StoreExchange
from training.checkpoint.tensor_table import Part, RankReport, Table, assign_shares
from trainyard.common import atomic_file
from trainyard.common.errors import TrainingError


class Share:
    """The part of every checkpoint that this rank writes. It is agreed on at the first save, then
    kept.

    Attributes:
        table: which rank writes what; empty except on rank 0.
    """

    def __init__(
        self, meeting: StoreExchange | LoneRank, parts: Mapping[str, Part], device: torch.device
    ):
        self.parts = parts
        left_out, self.table = agree_shares(meeting, parts)
        own_parts = {
            name: part for name, part in parts.items() if name not in left_out and part.bytes
        }
        self.image = Image(own_parts, device) if own_parts else None
        self._writer: Writer | None = None

    def write(self, path: Path, advance: Callable[[], None]) -> CheckpointFile | None:
        """Write this rank's file; return its size and hash, or None if other ranks write its parts.

        Raises:
            TrainingError: the file could not be written.
        """
        if self.image is None:
            return None
        self._writer = self._writer or Writer(self.image.descriptor, self.image.size)
        try:
            sha256 = self._writer.write(path, advance)
        except TrainingError:
            # The process may have died of the error: the next save starts another.
            self.end_writer()
            raise
        return CheckpointFile(bytes=self.image.size, sha256=sha256)

    def end_writer(self) -> None:
        """End the writing process; the next save starts a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def close(self) -> None:
        self.end_writer()
        if self.image is not None:
            self.image.close()


def agree_shares(
    meeting: StoreExchange | LoneRank, parts: Mapping[str, Part]
) -> tuple[set[str], Table]:
    """Agree on which rank writes what. Collective: call it on every rank.

    Returns:
        The names of tensors held here that another rank writes, and the table, which is empty
        except on rank 0.
    """
    report, table = RankReport.from_parts(parts), Table(layouts=(), tensors={})
    meeting.store_offer(f"names/{report.digest}", report.names)

    def assign_parts(reports: Sequence[Any]) -> list[list[str]]:
        """Assign the parts and set ``table``, on rank 0; return the names not to write by rank."""
        nonlocal table
        names = {digest: meeting.get_offer(f"names/{digest}") for digest in {d for d, _ in reports}}
        shares = assign_shares(names, reports)
        table = shares.table
        return [sorted(shares.not_written[rank]) for rank in range(len(reports))]

    return set(meeting.decide_per_rank((report.digest, report.layouts), assign_parts)), table


def build_parts(state: Mapping[str, Tensor]) -> dict[str, Part]:
    """Return a mapping of each tensor's name to the part that this rank holds."""
    return {name: build_part(name, tensor) for name, tensor in state.items()}


def build_shard_name(rank: int) -> str:
    """Return the name of the file that a rank writes, the same as torch's own writer uses."""
    return f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors"


def write_checkpoint(
    share: Share,
    meeting: StoreExchange | LoneRank,
    target: Path,
    leads: bool,
    metadata: Marker,
    keep: int,
) -> None:
    """Write every rank's part and then the marker; then delete the oldest checkpoints beyond
    ``keep``.

    Args:
        leads: whether this rank manages its machine's folder.
        metadata: marker with step, loss and lineage.

    Raises:
        TrainingError: a rank cannot write; raised on every rank.
        LostRankError: a rank is gone.
    """

    def clear_folder() -> None:
        """Create an empty folder for the checkpoint, if this rank manages it."""
        if leads:
            with atomic_file.storage_errors(target):
                recreate_folder(target)

    def write_share() -> Any:
        """Write this rank's file; return its size and hash, or None if it has none."""
        entry = share.write(target / build_shard_name(meeting.rank), meeting.report_progress)
        return entry and entry.model_dump()

    def write_marker() -> None:
        """Write the marker and delete old checkpoints, if this rank manages the folder."""
        if leads:
            atomic_file.write_file(target / marker.NAME, text)
            prune_checkpoints(target.parent, keep)

    _run_on_all(meeting, clear_folder, lambda every: None)
    text = _run_on_all(
        meeting, write_share, lambda every: _build_marker(metadata, share.table, every), leads
    )
    _run_on_all(meeting, write_marker, lambda every: None)


def _run_on_all(
    meeting: StoreExchange | LoneRank,
    act: Callable[[], Any],
    choose: Callable[[list[Any]], Any],
    needs_result: bool = False,
) -> Any:
    """Run ``act`` on every rank; return what ``choose`` returns on rank 0 for all results.

    Args:
        needs_result: whether this rank needs the choice; if not, None is returned.

    Raises:
        TrainingError: ``act`` failed on a rank; raised on every rank.
    """
    try:
        own_outcome = {"is": act()}
    except (OSError, TrainingError) as error:
        own_outcome = {"error": str(error)}

    def choose_result(outcomes: Sequence[dict[str, Any]]) -> Any:
        """Return the choice, or raise the error of the first rank that failed."""
        for rank, outcome in enumerate(outcomes):
            if "error" in outcome:
                prefix = f"rank {rank}: " if len(outcomes) > 1 else ""
                raise TrainingError(f"{prefix}{outcome['error']}")
        return choose([outcome["is"] for outcome in outcomes])

    return meeting.decide_together(own_outcome, choose_result, needs_result=needs_result)


def _build_marker(metadata: Marker, table: Table, entries: Sequence[Any]) -> str:
    """Return the marker's JSON; ``entries``: size and hash of each rank's file, or None if it has
    none.
    """
    files = {build_shard_name(rank): entry for rank, entry in enumerate(entries) if entry}
    numbers = {
        rank: number for number, rank in enumerate(r for r, entry in enumerate(entries) if entry)
    }
    fields = {"format": FORMAT, "files": files, "table": table.renumber_files(numbers).model_dump()}
    full_metadata = Marker.model_validate(metadata.model_dump() | fields).seal()
    return json.dumps(full_metadata.model_dump(mode="json"), separators=(",", ":"))


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Delete all complete checkpoints except the newest ``keep`` and the one with the lowest loss.

    A checkpoint with a damaged marker is neither counted nor deleted, because its value is unknown.
    """
    markers_by_step = {
        n: marker.load_valid_marker(marker.build_folder_path(folder, n))
        for n in marker.list_steps(folder)
    }
    intact = {step: read for step, read in markers_by_step.items() if read}
    losses = {n: m.validation_loss for n, m in intact.items() if m.validation_loss is not None}
    kept_steps = {*[*intact][-keep:], *([min(losses, key=losses.__getitem__)] if losses else [])}
    for step in {*intact} - kept_steps:
        old = marker.build_folder_path(folder, step)
        # Delete the marker first: a half-deleted checkpoint must not look complete. Machines that
        # share a folder (FSx, a Kubernetes claim) all prune it, so files may already be gone.
        (old / marker.NAME).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            shutil.rmtree(old)


def recreate_folder(folder: Path) -> None:
    """Create an empty folder, even if another machine does so at the same time."""
    remove_path(folder)
    # Created by another machine, which creates it again if it clears it.
    with suppress(FileExistsError):
        folder.mkdir(parents=True)


def remove_path(path: Path) -> None:
    """Remove whatever is at ``path``: a folder with all its contents, or a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(IsADirectoryError):  # another machine that shares the folder has just created it
        path.unlink(missing_ok=True)


# torch has ``dcp.async_save`` with ``AsyncCheckpointerType.PROCESS``, which is not used: its
# process imports torch and joins its own process group (as many connections again, and the timeout
# of a collective), gathers the plans of all ranks as pickles at each save, shares each tensor by a
# file in /dev/shm that a killed job leaves behind, and its safetensors writer has a file in memory
# twice.


CHECKOUT = Path(__file__).parents[2]
HELD_BACK = (signal.SIGTERM, signal.SIGINT)


class Writer:
    """The process that writes this rank's files, from its start to ``close``."""

    def __init__(self, image: int, size: int) -> None:
        """Start the process; ``image``: file descriptor of the ``size`` bytes that it writes."""
        import_paths = os.pathsep.join(
            [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        command = [sys.executable, "-m", "training.checkpoint.writer_process"]
        # The process inherits the blocked signals: a stop must not truncate the file that is being
        # written.
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        try:
            self._process = subprocess.Popen(
                [*command, str(image), str(size), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[image],
                env=os.environ | {"PYTHONPATH": import_paths},
                text=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)

    def write(self, path: Path, advance: Callable[[], None]) -> str:
        """Make the process write the image to ``path``; return the hash of its block hashes.

        Args:
            advance: called each time some of it is written.

        Raises:
            TrainingError: the file could not be written, or the process is gone.
        """
        sends, answers = self._process.stdin, self._process.stdout
        assert sends and answers  # noqa: S101
        try:
            sends.write(json.dumps(str(path)) + "\n")
            sends.flush()
            for line in answers:
                answer = json.loads(line)
                if "sha256" in answer:
                    return answer["sha256"]
                if "error" in answer:
                    raise TrainingError(answer["error"])
                advance()
        # The process has ended, and its exit status says more than the broken pipe does.
        except BrokenPipeError:
            pass
        status = self._process.wait()
        raise TrainingError(
            f"{path}: the process that writes it ended with status {status}; was it killed for "
            "lack of memory?"
        )

    def close(self) -> None:
        """Close the pipes, which ends the process, and wait for it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._process.wait()
