"""Trainyard's checkpoints and torch's own (DCP) behind one interface, and the state they save.

``TrainingState`` is a training's state without its memory: FSDP's shards of big weights, and
AdamW's moments. All tensors of a rank lie in one buffer, each a page further than the one before:
what is saved is as long as a model's state and differs from tensor to tensor, and the memory that
is measured is that of the checkpoint. An element is a hash of its position in the whole tensor and
of the tensor's number, so any number of ranks can compute the expected values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from training.checkpoint.checkpoints import Checkpoints
from training.strategies.ranks import Ranks

State = dict[str, Tensor]


class Contender(Protocol):
    """A way to save and load checkpoints, as one rank uses it; every rank makes the same calls."""

    def save(self, step: int, state: State) -> Callable[[], object]:
        """Begin to save the state; return a function that waits until the save is complete."""

    def load(self, state: State) -> None:
        """Load the newest checkpoint into the state's tensors."""

    def close(self) -> None:
        """Free all memory."""


class Ours:
    """Trainyard's checkpoints, whose hashes are verified at each load."""

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
    """``dcp.save`` and ``dcp.load`` as they are documented, without hashes."""

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
    """``dcp.async_save`` with a stager that reuses its memory for the next save."""

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

COLUMNS = 2048
PAGE = 1024  # elements of float32
KINDS = ("model.{}.weight", "optimizer.{}.weight.exp_avg", "optimizer.{}.weight.exp_avg_sq")


@dataclass(frozen=True)
class Size:
    """Size of a model: the number of its weights, and the rows of each."""

    weights: int
    rows: int
    """Rows of each weight, which has ``COLUMNS`` columns in float32."""

    @classmethod
    def from_byte_counts(cls, model: float, weight: float, parts: int) -> "Size":
        """Return the size closest to ``model`` bytes of state, in weights of ``weight`` bytes.

        The number of rows is a multiple of ``parts``.
        """
        rows = max(1, round(weight / (4 * COLUMNS * parts))) * parts
        return cls(max(1, round(model / (len(KINDS) * 4 * COLUMNS * rows))), rows)

    @property
    def bytes(self) -> int:
        return len(KINDS) * self.weights * self.rows * COLUMNS * 4


class TrainingState:
    """State of a training on one rank.

    Attributes:
        tensors: what is saved or resumed.
        shard: bytes of it on this rank.
    """

    def __init__(self, size: Size, mesh: DeviceMesh, *, filled: bool) -> None:
        """Create the tensors; ``filled``: with the values to be saved, else with zeros."""
        rank, world = mesh.get_rank(), mesh.size()
        count = size.rows // world * COLUMNS
        self._first = rank * count
        self._count = count + (len(KINDS) * size.weights - 1) * PAGE
        self._buffer = (
            self._compute_expected_bits() if filled else torch.zeros(self._count, dtype=torch.int32)
        )
        self._memory = memoryview(self._buffer.numpy())
        self.tensors: dict[str, Tensor] = {}
        for number in range(size.weights):
            for kind in KINDS:
                self.tensors[kind.format(number)] = self._make_sharded_tensor(size, mesh, count)
            steps = torch.tensor(float(number) if filled else -1.0)  # every rank has it
            self.tensors[f"optimizer.{number}.weight.step"] = steps
        self.shard = len(KINDS) * size.weights * count * 4

    def _make_sharded_tensor(self, size: Size, mesh: DeviceMesh, count: int) -> Tensor:
        begin = PAGE * sum(isinstance(one, DTensor) for one in self.tensors.values())
        flat = torch.frombuffer(self._memory, dtype=torch.float32, count=count, offset=4 * begin)
        local = flat.view(-1, COLUMNS)
        return DTensor.from_local(
            local, mesh, [Shard(0)], run_check=False,
            shape=torch.Size((size.rows, COLUMNS)), stride=(COLUMNS, 1),
        )  # fmt: skip

    def _compute_expected_bits(self) -> Tensor:
        where = torch.arange(self._first, self._first + self._count)
        return (where * 2654435761 & 0x3FFFFFFF).to(torch.int32)  # as float32 finite, positive

    @property
    def is_right(self) -> bool:
        """Return whether every tensor holds what was saved."""
        steps = [float(one) for one in self.tensors.values() if not isinstance(one, DTensor)]
        same = torch.equal(self._buffer, self._compute_expected_bits())
        return same and steps == [*range(len(steps))]
