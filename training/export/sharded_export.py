"""The trained weights as safetensors files, which many ranks write concurrently.

Weights are gathered one by one. A whole weight is briefly on the ranks that it is gathered over,
and only the rank that writes its file has it on the CPU: while it writes, the next is gathered. So
a rank's memory grows with its largest weights, not with the model or a file.

The layout depends on the weights alone, as with transformers' ``save_pretrained``: files of at most
``shard_bytes``, in the order of the model's state. One file is ``model.safetensors``;
several are ``model-00001-of-000NN.safetensors``, and model.safetensors.index.json says which has
what. Each rank writes into its own machine's folder: SageMaker takes those of all machines together
(developer guide, "How Amazon SageMaker AI Processes Training Output").
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import Tensor

from training.export.safetensors_file import SafeFile, size
from training.export.weight_location import Weights, first_names, gather_weights, untie_weights
from training.finetuning import lora
from training.finetuning.adapters import Adapters
from training.finetuning.hugging_face_folder import INDEX, SUFFIX, WEIGHTS
from training.strategies.ranks import Ranks
from training.workloads import Workload
from trainyard.common import atomic_file
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

Files = Mapping[str, Mapping[str, Tensor]]
"""Name of a file → name of a weight → a tensor of its type and shape."""


@dataclass(frozen=True)
class Part:
    """Weights that ``Workload.export`` receives together, and the outputs that are written."""

    names: Sequence[str]
    outputs: Sequence[str]


class Export:
    """Runs ``Workload.export`` on all or some of the weights; adds adapters if they are merged."""

    def __init__(
        self, workload: Workload, adapter_tensors: Mapping[str, Tensor], scale: float
    ) -> None:
        """Prepare the export; ``adapter_tensors``: the adapters under the names of the exported
        layers.
        """
        self.workload, self._adapter_tensors, self._scale = workload, adapter_tensors, scale

    def __call__(self, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, config = self.workload.export(weights)
        part_adapters = {
            n: t
            for n, t in self._adapter_tensors.items()
            if f"{n.rpartition('.')[0]}.weight" in tensors
        }
        return lora.add_adapters(tensors, part_adapters, self._scale), config


def export(
    folder: Path,
    source: Weights,
    workload: Workload,
    adapters: Adapters | None,
    base: Mapping[str, Any] | None,
    shard_bytes: int,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Write the model's files, or its adapters', into ``folder``; every rank takes part.

    Args:
        adapters: settings of the adapters in the state; ``base`` is the model that they belong to.
        shard_bytes: largest size of a file; a larger weight has its own file.

    Returns (what ``Workload.export`` says for config.json, further name of a weight → the one that
    it is written under), on rank 0.

    Raises:
        TrainingError: a file could not be written, or the parts do not give the whole; on
            every rank.
    """
    names = {name: name for name in source.meta_tensors()}
    plain, adapter_names = lora.split_adapters(names) if adapters else (names, {})
    merging = adapters is not None and adapters.merge
    keepers = range(source.ranks.world) if merging else (0,)
    adapter_states = (
        gather_weights(source, adapter_names.values(), keepers) if adapter_names else {}
    )
    adapter_tensors = lora.rename_adapters(
        workload, {layer: adapter_states[n] for layer, n in adapter_names.items() if adapter_states}
    )
    if adapters and base and source.ranks.rank == 0:
        lora.write(folder, adapter_tensors, adapters, base)
    run = Export(workload, adapter_tensors if merging else {}, adapters.scale if adapters else 1.0)
    split = parts_of(workload, [*plain])
    if len(split) == 1:
        return _at_once(folder, source, plain, run, shard_bytes, writes=merging or not adapters)
    meta_tensors = source.meta_tensors()
    on_meta = {layer: meta_tensors[n] for layer, n in adapter_names.items()} if merging else {}
    dry = Export(
        workload, lora.rename_adapters(workload, on_meta), adapters.scale if adapters else 1.0
    )
    exports, config = dry({name: meta_tensors[state] for name, state in plain.items()})
    tensors, ties = untie_weights(exports)
    if merging or not adapters:
        parts = _parts(split, dry, {n: meta_tensors[s] for n, s in plain.items()}, exports, tensors)
        order = {name: tensors[name] for part in parts for name in part.outputs}
        _stream(folder, source, plain, run, parts, _files(order, shard_bytes))
    return config, ties


def parts_of(workload: Workload, names: Sequence[str]) -> list[Sequence[str]]:
    """Return the groups of names for ``Workload.export``: one group if it needs all names.

    If a class overrides only ``export``, the parts of its base class's
    ``export`` are not used.
    """
    parts = getattr(workload, "export_parts", None)
    if parts is None or _depth(workload, "export_parts") > _depth(workload, "export"):
        return [names]
    return [*parts(names)]


def _depth(workload: Workload, method: str) -> int:
    """Return how far up the classes the method is defined; 0 for the workload's own class."""
    homes = [workload, *type(workload).__mro__]
    return next((level for level, home in enumerate(homes) if method in vars(home)), len(homes))


def _at_once(
    folder: Path,
    source: Weights,
    plain: Mapping[str, str],
    run: Export,
    shard_bytes: int,
    *,
    writes: bool,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Export on rank 0 with all weights, for a workload that cannot export its weights in parts."""
    leads = source.ranks.rank == 0
    if leads and source.ranks.world > 1 and len(plain) > 1:
        log.warning(
            "rank 0 gathers the whole model: %s has an export and no export_parts of its own, so "
            "it needs all weights at once",
            type(run.workload).__module__,
        )
    state = gather_weights(source, plain.values())
    config: dict[str, Any] = {}
    ties: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    if leads:
        exports, config = run({name: state[state_name] for name, state_name in plain.items()})
        tensors, ties = untie_weights(exports)
    files = _files(tensors, shard_bytes) if leads and writes else {}
    writing = Writing(folder, files, files)
    for name, tensor in tensors.items() if writes else ():
        writing.put(name, tensor)
    writing.end(source.ranks)
    return config, ties


def _parts(
    split: Iterable[Sequence[str]],
    dry: Export,
    meta_tensors: Mapping[str, Tensor],
    exports: Mapping[str, Tensor],
    unique_exports: Mapping[str, Tensor],
) -> list[Part]:
    """Return the groups of weights exported together, with the outputs that are written.

    Raises:
        TrainingError: the parts differ from an export of all weights together.
    """
    part_exports: dict[str, Tensor] = {}
    parts = []
    for names in split:
        outputs, _ = dry({name: meta_tensors[name] for name in names})
        part_exports |= outputs
        if kept_outputs := [name for name in outputs if name in unique_exports]:
            parts.append(Part(names, kept_outputs))
    differ = [
        n
        for n in {**exports, **part_exports}
        if _kind(exports.get(n)) != _kind(part_exports.get(n))
    ]
    if differ:
        raise TrainingError(
            f"Workload.export of the parts that export_parts names gives {differ[0]} as "
            f"{_kind(part_exports.get(differ[0]))}, of all weights as "
            f"{_kind(exports.get(differ[0]))}: let "
            "each part hold all that its exported weights are made of"
        )
    return parts


def _kind(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def _stream(
    folder: Path,
    source: Weights,
    plain: Mapping[str, str],
    run: Export,
    parts: Sequence[Part],
    files: Files,
) -> None:
    """Gather part after part, for the ranks that write them."""
    first, rank = first_names(source.meta_tensors()), source.ranks.rank
    file_of = {name: file for file, weights in files.items() for name in weights}
    holders: dict[str, Sequence[int]] = {}
    for part in parts:
        for name in part.outputs:
            holders.setdefault(file_of[name], source.holders(first[plain[part.names[0]]]))
    writers = _writers(holders)
    order = [*_in_turn(parts, lambda part: file_of[part.outputs[0]])]
    needed_names = [[*dict.fromkeys(first[plain[name]] for name in part.names)] for part in order]
    keepers = [{writers[file_of[name]] for name in part.outputs} for part in order]
    stream = source.gather_full_tensors(
        (name, part_keepers)
        for names, part_keepers in zip(needed_names, keepers, strict=True)
        for name in names
    )
    writing = Writing(folder, files, [file for file in files if writers[file] == rank])

    def write(part: Part, state: Mapping[str, Tensor]) -> None:
        exports, _ = run({name: state[first[plain[name]]] for name in part.names})
        for name in part.outputs:
            if writers[file_of[name]] == rank:
                writing.put(name, exports[name])

    for part, names, part_keepers in zip(order, needed_names, keepers, strict=True):
        state = {name: next(stream) for name in names}
        if rank in part_keepers:
            write(part, {name: tensor for name, tensor in state.items() if tensor is not None})
        state.clear()  # before the next is gathered
    writing.end(source.ranks)


class Writing:
    """The files of one rank: a weight is written while the next is gathered.

    A failure is raised at the end: until then the other ranks rely on this one.
    """

    def __init__(self, folder: Path, files: Files, own_files: Collection[str]) -> None:
        """Open the files; ``files``: of all ranks; ``own_files``: names of those that this rank
        writes.
        """
        self._folder, self._files, self._failure = folder, files, ""
        self._pool, self._pending = ThreadPoolExecutor(1), Future[None]()
        self._pending.set_result(None)
        self._open: dict[str, SafeFile] = {}
        self._file_of = {name: file for file in own_files for name in files[file]}
        self._begin(own_files)

    def put(self, name: str, tensor: Tensor) -> None:
        """Have a weight written; waits for the previous one."""
        self._settle()
        if not self._failure:
            file = self._open[self._file_of[name]]
            self._pending = self._pool.submit(file.put, name, tensor)

    def end(self, ranks: Ranks) -> None:
        """Give the files their names, on every rank; rank 0 writes the index if one is needed.

        Raises:
            TrainingError: a rank could not write its files.
        """
        self._settle()
        self._pool.shutdown()
        self._finish()
        failures = [
            (rank, reason) for rank, reason in enumerate(ranks.gather(self._failure)) if reason
        ]
        if failures:
            rank, reason = failures[0]
            raise TrainingError(f"rank {rank} could not write the model: {reason}")
        if ranks.rank == 0 and len(self._files) > 1:
            atomic_file.write(self._folder / INDEX, index(self._files))

    def _begin(self, own_files: Collection[str]) -> None:
        try:
            for name in own_files:
                self._open[name] = SafeFile(self._folder / name, self._files[name])
        except OSError as error:
            self._failure = str(error)

    def _settle(self) -> None:
        try:
            self._pending.result()
        except (OSError, ValueError) as error:
            self._failure = self._failure or str(error)

    def _finish(self) -> None:
        try:
            for file in self._open.values():
                file.discard() if self._failure else file.finish()
        except (OSError, ValueError) as error:
            self._failure = str(error)


def index(files: Files) -> str:
    """Return the content of model.safetensors.index.json, as transformers writes it."""
    tensors = [tensor for weights in files.values() for tensor in weights.values()]
    sums = {
        "total_parameters": sum(tensor.numel() for tensor in tensors),
        "total_size": sum(map(size, tensors)),
    }
    places = {name: file for file, weights in files.items() for name in weights}
    content = {"metadata": sums, "weight_map": places}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _files(meta_tensors: Mapping[str, Tensor], most: int) -> Files:
    """Return the weights in files of at most ``most`` bytes, or of one weight, in their order."""
    bins: list[dict[str, Tensor]] = [{}]
    file_bytes = 0
    for name, meta_tensor in meta_tensors.items():
        if bins[-1] and file_bytes + size(meta_tensor) > most:
            bins.append({})
            file_bytes = 0
        bins[-1][name] = meta_tensor
        file_bytes += size(meta_tensor)
    if len(bins) == 1:
        return {WEIGHTS: bins[0]}
    stem = WEIGHTS.removesuffix(SUFFIX)
    return {
        f"{stem}-{number:05d}-of-{len(bins):05d}{SUFFIX}": weights
        for number, weights in enumerate(bins, 1)
    }


def _writers(holders: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return file → the rank that writes it: one that holds its weights, spread over all ranks."""
    files_by_ranks: dict[tuple[int, ...], list[str]] = {}
    for file, ranks in holders.items():
        files_by_ranks.setdefault(tuple(ranks), []).append(file)
    return {
        file: ranks[number * len(ranks) // len(files)]
        for ranks, files in files_by_ranks.items()
        for number, file in enumerate(files)
    }


def _in_turn(parts: Sequence[Part], file_of: Callable[[Part], str]) -> Iterator[Part]:
    """Yield the first part of each file, then the second, …: all writers work concurrently."""
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(file_of(part), []).append(part)
    for turn in zip_longest(*groups.values()):
        yield from (part for part in turn if part is not None)
