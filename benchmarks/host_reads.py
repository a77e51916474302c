"""Count host reads of a training step, for each strategy: on a GPU each is a wait for the device.

python -m benchmarks.host_reads [--only DDP] [--json F]

Counted on real ranks (gloo) in two steps that are not logged. Exits with 1 when there is any.

On a GPU a program that asks for a number (``.item()``, ``bool(tensor)``, ``x[mask]``) waits until
everything before it is computed, and the GPU idles while the next work is prepared. On a CPU
nothing waits, so nothing shows. Here chosen tensors, and all that is computed from them, are taken
to be on a device, and whatever would make the host wait for them is noted, or is an error.

What torch's C++ reads of its own tensors on the host (DDP's map of unused weights) is no wait, and
is not noted: it is not computed from what was named. Neither is a copy to the device.
"""

import json
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import track
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.harness import show_table
from benchmarks.strategies.cases import CASES, SETTINGS, container, write_data
from tests.training import worlds

STEPS = {"max_steps": 6, "log_interval": 100, "validation_interval": 100,
         "checkpoint_interval": 100, "precision": "float32"}  # fmt: skip
SHOWN = (
    *("single", "accumulation 8", "DDP × 2", "FSDP2 × 2", "hybrid 2 × 2", "tensor × 2"),
    *("pipeline × 2", "context × 2"),
)
MORE = {
    "LAMB, averages": (1, {"strategy": "single", "optimizer": "lamb", "ema_decay": 0.9}),
    "LAMB, averages, FSDP2 × 2": (2, {"strategy": "fsdp", "optimizer": "lamb", "ema_decay": 0.9}),
    "AdamW, averages, FSDP2 × 2": (2, {"strategy": "fsdp", "ema_decay": 0.9}),
    "float16, DDP × 2": (2, {"strategy": "ddp", "precision": "float16"}),
    "float16, FSDP2 × 2": (2, {"strategy": "fsdp", "precision": "float16"}),
    "float8, single": (1, {"strategy": "single", "float8": "rowwise"}),
    "float8 gathered, FSDP2 × 2": (
        2,
        {"strategy": "fsdp", "float8": "tensorwise", "float8_all_gather": True},
    ),
}
WATCHED = (4, 5)
"""Steps from 1: neither logged, validated nor saved, and not the first, which has more to do."""

READS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim"),
    *("unique_consecutive", "bincount", "repeat_interleave", "is_nonzero"),
}
"""Operators whose result, or its shape, the host has to know (torch.cuda.set_sync_debug_mode)."""

MASKED = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""They read where an index is a mask: ``nonzero`` is called for it."""

METHODS = {
    getattr(Tensor, name): name for name in ("tolist", "numpy", "cpu", "__array__", "__repr__")
}
"""Methods that read a CPU's tensor without an operator."""


@dataclass(frozen=True)
class Read:
    """A place where the host would have waited for the device."""

    what: str
    where: str
    """``file:line function`` of the innermost call outside of torch."""


class ReadError(RuntimeError):
    """The host would have waited for the device."""


class HostReads:
    """Inside, reads of tensors on the device are noted.

    Args:
        forbidden: whether one is an error instead, where it happens.

    Attributes:
        found: every one of them, in their order.
    """

    def __init__(self, *, forbidden: bool = False) -> None:
        self.found: list[Read] = []
        self._forbidden = forbidden
        self._storages: dict[int, StorageWeakRef] = {}
        self._modes = ExitStack()

    def put(self, tensors: Iterable[Tensor]) -> None:
        """From now on these are on the device, and what is computed from them."""
        for tensor in tensors:
            local = getattr(tensor, "_local_tensor", tensor)
            reference = StorageWeakRef(local.untyped_storage())
            self._storages[reference.cdata] = reference

    def has(self, tensor: object) -> bool:
        """Return whether the tensor is on the device."""
        if not isinstance(tensor, Tensor):
            return False
        local = getattr(tensor, "_local_tensor", tensor)
        found = self._storages.get(local.untyped_storage()._cdata)
        return found is not None and not found.expired()

    def note(self, what: str) -> None:
        """The host reads."""
        read = Read(what, _caller())
        self.found.append(read)
        if self._forbidden:
            raise ReadError(f"{what} at {read.where} makes the host wait for the device")

    def __enter__(self) -> "HostReads":
        self._modes.enter_context(_Methods(self))
        self._modes.enter_context(_Operators(self))
        return self

    def __exit__(self, *error: Any) -> None:
        self._modes.__exit__(*error)


class _Operators(TorchDispatchMode):
    def __init__(self, reads: HostReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(one not in (Tensor, torch.nn.Parameter) for one in types):
            return NotImplemented  # a DTensor: its parts come by themselves
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_device = any(map(self._reads.has, given))
        name = func._schema.name.partition("::")[2]
        if on_device and (name in READS or (name in MASKED and self._masked(args))):
            self._reads.note(name)
        result = func(*args, **(kwargs or {}))
        if on_device:
            changed = given if func._schema.is_mutable else []
            self._reads.put(t for t in (*tree_leaves(result), *changed) if isinstance(t, Tensor))
        return result

    @staticmethod
    def _masked(args: Any) -> bool:
        """Not for one value at many places: that is a ``masked_fill`` on a GPU."""
        indices = [index for index in args[1] if isinstance(index, Tensor)]
        masks = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        return masks and not (len(args) > 2 and args[2].numel() == 1)


class _Methods(TorchFunctionMode):
    def __init__(self, reads: HostReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = METHODS.get(func) if func in METHODS else None
        if func is Tensor.to and "cpu" in (*args[1:], *kwargs.values()):
            name = "to('cpu')"
        if name and self._reads.has(args[0]) and not (name == "tolist" and not args[0].dim()):
            self._reads.note(name)
        return func(*args, **kwargs)


def _caller() -> str:
    for frame in reversed(traceback.extract_stack()):
        if "/torch/" not in frame.filename and frame.filename != __file__:
            return f"{frame.filename}:{frame.lineno} {frame.name}"
    return "torch"


@contextmanager
def noted(loop: Any, *, forbidden: bool = False) -> Iterator[HostReads]:
    """Context around a step of ``loop`` in which its weights and batches are on the device."""
    reads = HostReads(forbidden=forbidden)
    model, units = loop.strategy.model, loop.workload.units

    def counted(batch: Any) -> Any:
        reads.put(batch.values())
        return units(batch)

    loop.workload.units = counted  # a step's first look at its batches
    reads.put([*model.parameters(), *model.buffers()])
    try:
        with reads:
            yield reads
    finally:
        loop.workload.units = units


def watch(file: Path, *, forbidden: bool = False) -> None:
    """Have ``Loop``'s steps 4 and 5 write to ``file`` what they read, as JSON."""
    from training.loop import Loop

    train_step, found = Loop._train_step, []

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        if self.step + 1 not in WATCHED:
            return train_step(self, *given, **named)
        try:
            with noted(self, forbidden=forbidden) as reads:
                return train_step(self, *given, **named)
        finally:
            found.append([[read.what, read.where] for read in reads.found])
            file.write_text(json.dumps(found))

    Loop._train_step = watched


def run_watched(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Run one rank of the train job, watched."""
    watch(root / f"reads-{rank}.json")
    worlds.run_rank(given, environment, root, rank)


def counted(root: Path, world: int, differs: dict) -> list[list[list]]:
    """Train; the reads of each watched step on each rank."""
    given = SETTINGS | STEPS | differs
    codes = worlds.finish(worlds.start(root, world, target=run_watched, **given))
    if any(codes):
        raise RuntimeError(f"{root}: ranks ended with {codes}: {(root / 'rank-0.log').read_text()}")
    return [json.loads((root / f"reads-{rank}.json").read_text()) for rank in range(world)]


def main(only: str = "", json_file: Annotated[Path | None, typer.Option("--json")] = None) -> None:
    """Count the reads of every strategy whose name has ``only``."""
    cases = {name: CASES[name] for name in SHOWN if name in CASES} | MORE
    found: dict[str, list] = {}
    with tempfile.TemporaryDirectory() as scratch:
        write_data(Path(scratch) / "data")
        for name in track([name for name in cases if only in name], "training", transient=True):
            root = container(Path(scratch) / "data", Path(scratch) / name)
            found[name] = [read for step in counted(root, *cases[name])[0] for read in step]
    rows = [(name, f"{len(reads) / len(WATCHED):g}", "\n".join({" ".join(one) for one in reads}))
            for name, reads in found.items()]  # fmt: skip
    show_table(("strategy", "reads a step", "which"), rows, "", 160)
    if json_file:
        json_file.write_text(json.dumps(found, indent=1))
    raise typer.Exit(any(found.values()))


if __name__ == "__main__":
    typer.run(main)
