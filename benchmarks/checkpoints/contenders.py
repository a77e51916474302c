"""Trainyard's checkpoints and torch's own (DCP), asked for the same things."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from training.checkpoint.checkpoints import Checkpoints
from training.strategies.ranks import Ranks

State = dict[str, Tensor]


class Contender(Protocol):
    """One rank's; every rank does the same."""

    def save(self, step: int, state: State) -> Callable[[], object]:
        """Begin a save, as a loop does, which goes on then; what is returned waits for it."""

    def load(self, state: State) -> None:
        """The newest checkpoint into the state's tensors."""

    def close(self) -> None:
        """Give all memory back."""


class Ours:
    """Verified by hashes at each load."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self._checkpoints = Checkpoints(folder, "benchmark", 1, ranks)

    def save(self, step: int, state: State) -> Callable[[], object]:
        self._checkpoints.save(step, state)
        return self._checkpoints.finish

    def load(self, state: State) -> None:
        if self._checkpoints.resume(lambda: state) is None:
            raise RuntimeError("nothing was resumed")

    def close(self) -> None:
        self._checkpoints.__exit__(None, None, None)


class Dcp:
    """``dcp.save`` and ``dcp.load`` as they are documented; without hashes."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self._folder = folder

    def _path(self, step: int) -> Path:
        return self._folder / f"dcp-{step:08d}"

    def save(self, step: int, state: State) -> Callable[[], object]:
        import torch.distributed.checkpoint as dcp

        dcp.save(state, checkpoint_id=self._path(step))
        return lambda: None

    def load(self, state: State) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.load(state, checkpoint_id=max(self._folder.glob("dcp-*")))

    def close(self) -> None:
        pass


class DcpAsync(Dcp):
    """``dcp.async_save`` with a stager that keeps its memory for the next save."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        super().__init__(folder, ranks)
        cuda = torch.cuda.is_available()
        self._stager = DefaultStager(StagingOptions(cuda, False, cuda, cuda))

    def save(self, step: int, state: State) -> Callable[[], object]:
        import torch.distributed.checkpoint as dcp

        future = dcp.async_save(state, checkpoint_id=self._path(step), async_stager=self._stager)
        return future.result

    def close(self) -> None:
        self._stager.close()


CONTENDERS: dict[str, type[Contender]] = {"ours": Ours, "DCP": Dcp, "DCP async": DcpAsync}
