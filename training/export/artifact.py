"""The exported model: weights as safetensors, and everything needed to use them.

model.safetensors   weights, under the names that Workload.export gives them; absent if the training
                    trained adapters, unless they are merged. Large models have several files, and
                    model.safetensors.index.json (``training.export.artifact``)
adapter/            adapters, in peft's format (``training.weights.finetuning.lora``)
config.json         what other libraries load the weights with; workload, settings, how it was
                    trained
history.jsonl       the metric lines of the training run, from its first step on
tokenizer.json      if the workload has one
packages.txt        packages installed where it was trained, as ``name==version`` lines
code/               the code that serves it (``training.export.inference``)
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import distributions
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn

from training.export import shipped_files
from training.export.weight_location import (
    TIES,
    SafeFile,
    Weights,
    count_bytes,
    fill_weights,
    find_first_names,
    gather_weights,
    retie_weights,
    untie_weights,
)
from training.strategies.ranks import Ranks
from training.weights.finetuning import base_model, hugging_face_folder, lora
from training.weights.finetuning.adapters import Adapters
from training.weights.finetuning.hugging_face_folder import INDEX, SUFFIX, WEIGHTS
from training.weights.initial.build_model import build_on_meta, materialize_model, read_tensors
from training.workloads import Workload, load_workload
from trainyard.common import atomic_file
from trainyard.common.errors import DataError, TrainingError

SHARD_BYTES = 5 * 10**9
"""Largest size of a weights file in bytes; 5GB is also the default max_shard_size of
save_pretrained.
"""
BASE = "TRAINYARD_BASE"


def save_artifact(
    folder: Path,
    weights: Weights,
    workload: Workload,
    description: dict[str, Any],
    history: Sequence[Mapping[str, float]],
    adapters: Adapters | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write the artifact; config.json is written last. Collective: call it on every rank that has
    weights.

    Args:
        description: fields of config.json that describe the training.
        history: metric lines of the training.
        adapters: settings of the adapters among the weights; ``description`` names their model as
            ``base``.
        shard_bytes: largest size of a weights file in bytes.

    Raises:
        TrainingError: a rank could not write its files.
    """
    base = description.get("base")
    result = export_weights(folder, weights, workload, adapters, base, shard_bytes)
    if weights.ranks.rank != 0:
        return
    config, ties = result
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in workload.files().items():
        atomic_file.write_file(folder / name, content)
    lines = "".join(json.dumps(line) + "\n" for line in history)
    atomic_file.write_file(folder / "history.jsonl", lines)
    document = config | description | ({TIES: ties} if ties else {})
    atomic_file.write_file(folder / "config.json", json.dumps(document, indent=1))


def add_code(folder: Path, workload: str) -> str:
    """Put ``code/`` and packages.txt into the artifact; return the SHA-256 of packages.txt.

    ``code/`` is what AWS's PyTorch inference toolkit imports: inference.py, the folder
    ``training/``, and for a workload of the user's own everything in the folder of its package.
    Equal code and packages give equal bytes.
    """
    for name, path in sorted(_iter_code_files(workload)):
        target = folder / "code" / name
        with atomic_file.storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    python = ".".join(map(str, sys.version_info[:3]))
    # A set, because a package is listed again for each folder of the path that has it.
    packages = set()
    for distribution in distributions():
        # Read only the headers: ``distribution.metadata`` would also parse every package's readme.
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        headers = HeaderParser().parsestr(text.partition("\n\n")[0])
        packages.add(f"{headers['Name'].lower()}=={headers['Version']}")
    lines = "".join(f"{line}\n" for line in [f"# Python {python}", *sorted(packages)])
    atomic_file.write_file(folder / "packages.txt", lines)
    return hashlib.sha256(lines.encode()).hexdigest()


def _iter_code_files(workload: str) -> Iterator[tuple[str, Path]]:
    """Yield (name in ``code/``, file) of everything that inference needs."""
    checkout = Path(__file__).parents[2]
    yield "inference.py", checkout / "training/export/inference.py"
    # The first in a job, the second in a checkout.
    candidates = ("requirements.txt", "steps/requirements.txt")
    yield from (("requirements.txt", checkout / n) for n in candidates if (checkout / n).is_file())
    rooms = shipped_files.iter_room_files(checkout, [*shipped_files.EVERYWHERE, "training/"])
    for name, path in chain(rooms, shipped_files.list_package_files(workload)):
        if path.suffix == ".py":
            yield name, path


def load_artifact(
    folder: Path, base: Path | None = None
) -> tuple[Workload, nn.Module, dict[str, Any]]:
    """Return (workload, model in evaluation mode on the CPU, description).

    Args:
        base: folder with the model that adapters belong to, if the artifact holds only adapters;
            None: the environment variable TRAINYARD_BASE names it.

    Raises:
        DataError: a file is missing, or the weights are not those of the described model.
    """
    description = _read_description(folder)
    workload = load_workload(description["workload"], description["workload_config"], folder)
    model = build_on_meta(workload.model, 0)
    try:
        if hugging_face_folder.has_weights(folder):
            fill_weights(
                model,
                workload,
                retie_weights(
                    read_tensors(model, hugging_face_folder.list_weight_files(folder)), description
                ),
            )
        else:
            _fill_adapted(model, workload, folder, base, description)
    except (RuntimeError, KeyError, SafetensorError) as error:
        first = str(error).splitlines()[0]
        raise DataError(f"{folder}: the weights are not those of config.json: {first}") from None
    return workload, materialize_model(model).eval(), description


def _read_description(folder: Path) -> dict[str, Any]:
    """Return the artifact's config.json.

    Raises:
        DataError: it is missing or damaged, or there are no weights.
    """
    kinds = (lora.WEIGHTS, hugging_face_folder.INDEX, hugging_face_folder.WEIGHTS)
    weights_file = next(
        (name for name in kinds if (folder / name).is_file()), hugging_face_folder.WEIGHTS
    )
    for name in ("config.json", weights_file):
        if not (folder / name).is_file():
            raise DataError(
                f"{folder / name}: is missing; the training job did not finish its model"
            )
    try:
        description = json.loads((folder / "config.json").read_bytes())
        return description | {n: description[n] for n in ("workload", "workload_config")}
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{folder / 'config.json'}: is damaged; train the model again") from None


def _fill_adapted(
    model: nn.Module,
    workload: Workload,
    folder: Path,
    base: Path | None,
    description: Mapping[str, Any],
) -> None:
    """Write the base model's weights into ``model``, with the adapters added.

    Raises:
        DataError: the base is missing, or is another model.
    """
    base_record = description["base"]
    base = base or (Path(os.environ[BASE]) if BASE in os.environ else None)
    if base is None:
        raise DataError(
            f"{folder}: contains only adapters; their base {base_record['uri']} has to be in a "
            f"folder that the environment variable {BASE} names, or train with train.adapters.merge"
        )
    if (digest := hugging_face_folder.hash_model_files(base)) != base_record["sha256"]:
        raise DataError(
            f"the adapters belong to base {base_record['sha256']} ({base_record['uri']}), but the "
            f"given base is {digest}: give the former, or train with train.adapters.merge"
        )
    tensors = base_model.read_weights(workload, description["workload"], base, base_record["uri"])
    fill_weights(model, workload, lora.add_adapters(tensors, *lora.read_adapters(folder)))


# Writing the trained weights as safetensors files, which many ranks do concurrently.
#
# Weights are gathered one by one. A whole weight is briefly on the ranks that it is gathered over,
# and only the rank that writes its file has it on the CPU; while it writes, the next weight is
# gathered. So a rank's memory grows with its largest weights, not with the model or a file.
#
# The layout depends only on the weights, as with transformers' ``save_pretrained``: files of at
# most ``shard_bytes``, in the order of the model's state. A single file is ``model.safetensors``;
# several are ``model-00001-of-000NN.safetensors``, and model.safetensors.index.json says which has
# what. Each rank writes into its own machine's folder: SageMaker collects those of all machines
# (developer guide, "How Amazon SageMaker AI Processes Training Output").

log = logging.getLogger(__name__)

Files = Mapping[str, Mapping[str, Tensor]]
"""Mapping of a file's name to its weights, by name: tensors of their type and shape."""


@dataclass(frozen=True)
class Part:
    """Weights that ``Workload.export`` receives together, and those of its outputs that are
    written.
    """

    names: Sequence[str]
    outputs: Sequence[str]


class Export:
    """Run ``Workload.export`` on all or some of the weights; add the adapters if they are
    merged.
    """

    def __init__(
        self, workload: Workload, adapter_tensors: Mapping[str, Tensor], scale: float
    ) -> None:
        """Prepare the export.

        Args:
            adapter_tensors: adapters to merge, under the names of the exported layers.
            scale: factor of the adapters.
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


def export_weights(
    folder: Path,
    source: Weights,
    workload: Workload,
    adapters: Adapters | None,
    base: Mapping[str, Any] | None,
    shard_bytes: int,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Write the model's files, or its adapters', into ``folder``. Collective: call it on every
    rank.

    Args:
        adapters: settings of the adapters in the state; ``base`` is the model that they belong to.
        shard_bytes: largest size of a file; a larger weight has its own file.

    Returns:
        On rank 0, what ``Workload.export`` gives for config.json, and a mapping of each further
        name of a weight to the name under which it is written.

    Raises:
        TrainingError: a file could not be written, or the parts do not give the whole model; raised
            on every rank.
    """
    names = {name: name for name in source.make_meta_tensors()}
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
        lora.write_adapters(folder, adapter_tensors, adapters, base)
    run = Export(workload, adapter_tensors if merging else {}, adapters.scale if adapters else 1.0)
    split = group_export_names(workload, [*plain])
    if len(split) == 1:
        return _export_all(folder, source, plain, run, shard_bytes, writes=merging or not adapters)
    meta_tensors = source.make_meta_tensors()
    on_meta = {layer: meta_tensors[n] for layer, n in adapter_names.items()} if merging else {}
    # A dry run on meta gives the names, shapes and ties before any weight is gathered.
    dry = Export(
        workload, lora.rename_adapters(workload, on_meta), adapters.scale if adapters else 1.0
    )
    exports, config = dry({name: meta_tensors[state] for name, state in plain.items()})
    tensors, ties = untie_weights(exports)
    if merging or not adapters:
        parts = _plan_parts(
            split, dry, {n: meta_tensors[s] for n, s in plain.items()}, exports, tensors
        )
        order = {name: tensors[name] for part in parts for name in part.outputs}
        _export_in_parts(folder, source, plain, run, parts, _group_into_files(order, shard_bytes))
    return config, ties


def group_export_names(workload: Workload, names: Sequence[str]) -> list[Sequence[str]]:
    """Return the groups of names for ``Workload.export``; a single group if it needs all names at
    once.

    If a class overrides only ``export``, the ``export_parts`` of its base class is not used.
    """
    parts = getattr(workload, "export_parts", None)
    if parts is None or _find_definition_depth(workload, "export_parts") > _find_definition_depth(
        workload, "export"
    ):
        return [names]
    return [*parts(names)]


def _find_definition_depth(workload: Workload, method: str) -> int:
    """Return the position in the inheritance order of the first class that defines ``method``; 0
    stands for the workload object itself.
    """
    homes = [workload, *type(workload).__mro__]
    return next((level for level, home in enumerate(homes) if method in vars(home)), len(homes))


def _export_all(
    folder: Path,
    source: Weights,
    plain: Mapping[str, str],
    run: Export,
    shard_bytes: int,
    *,
    writes: bool,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Export on rank 0 with all weights, for a workload that cannot export its weights in parts.

    Collective: call it on every rank. ``writes``: whether the weights are written, too.
    """
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
    files = _group_into_files(tensors, shard_bytes) if leads and writes else {}
    writing = WeightWriter(folder, files, files)
    for name, tensor in tensors.items() if writes else ():
        writing.put(name, tensor)
    writing.finish(source.ranks)
    return config, ties


def _plan_parts(
    split: Iterable[Sequence[str]],
    dry: Export,
    meta_tensors: Mapping[str, Tensor],
    exports: Mapping[str, Tensor],
    unique_exports: Mapping[str, Tensor],
) -> list[Part]:
    """Return the groups of weights that are exported together, with the outputs that are written.

    Raises:
        TrainingError: exporting the parts gives other tensors than exporting all weights together.
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
        if _describe_tensor(exports.get(n)) != _describe_tensor(part_exports.get(n))
    ]
    if differ:
        raise TrainingError(
            f"Workload.export of the parts that export_parts names gives {differ[0]} as "
            f"{_describe_tensor(part_exports.get(differ[0]))}, of all weights as "
            f"{_describe_tensor(exports.get(differ[0]))}: make each part contain all weights from "
            "which its exported weights are computed"
        )
    return parts


def _describe_tensor(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def _export_in_parts(
    folder: Path,
    source: Weights,
    plain: Mapping[str, str],
    run: Export,
    parts: Sequence[Part],
    files: Files,
) -> None:
    """Gather part after part for the ranks that write them, and write them. Collective: call it
    on every rank.
    """
    first, rank = find_first_names(source.make_meta_tensors()), source.ranks.rank
    file_of = {name: file for file, weights in files.items() for name in weights}
    holders: dict[str, Sequence[int]] = {}
    for part in parts:
        for name in part.outputs:
            # A file is written by one of the ranks that hold its first part.
            holders.setdefault(file_of[name], source.list_holders(first[plain[part.names[0]]]))
    writers = _assign_writers(holders)
    order = [*_interleave_parts(parts, lambda part: file_of[part.outputs[0]])]
    needed_names = [[*dict.fromkeys(first[plain[name]] for name in part.names)] for part in order]
    keepers = [{writers[file_of[name]] for name in part.outputs} for part in order]
    stream = source.gather_full_tensors(
        (name, part_keepers)
        for names, part_keepers in zip(needed_names, keepers, strict=True)
        for name in names
    )
    writing = WeightWriter(folder, files, [file for file in files if writers[file] == rank])

    def write(part: Part, state: Mapping[str, Tensor]) -> None:
        """Export a part, and start to write those of its weights whose files this rank writes."""
        exports, _ = run({name: state[first[plain[name]]] for name in part.names})
        for name in part.outputs:
            if writers[file_of[name]] == rank:
                writing.put(name, exports[name])

    for part, names, part_keepers in zip(order, needed_names, keepers, strict=True):
        state = {name: next(stream) for name in names}
        if rank in part_keepers:
            write(part, {name: tensor for name, tensor in state.items() if tensor is not None})
        state.clear()  # free this part before the next is gathered
    writing.finish(source.ranks)


class WeightWriter:
    """Write one rank's files: a weight is written while the next is gathered.

    A failure is raised only at the end, because until then the other ranks rely on this one.
    """

    def __init__(self, folder: Path, files: Files, own_files: Collection[str]) -> None:
        """Open the files that this rank writes.

        Args:
            files: files of all ranks.
            own_files: names of those that this rank writes.
        """
        self._folder, self._files, self._failure = folder, files, ""
        self._pool, self._pending = ThreadPoolExecutor(1), Future[None]()
        self._pending.set_result(None)
        self._open: dict[str, SafeFile] = {}
        self._file_of = {name: file for file in own_files for name in files[file]}
        try:
            for name in own_files:
                self._open[name] = SafeFile(self._folder / name, self._files[name])
        except OSError as error:
            self._failure = str(error)

    def put(self, name: str, tensor: Tensor) -> None:
        """Start to write a weight, after waiting for the previous one."""
        self._wait_for_pending()
        if not self._failure:
            file = self._open[self._file_of[name]]
            self._pending = self._pool.submit(file.put, name, tensor)

    def finish(self, ranks: Ranks) -> None:
        """Give the files their final names; rank 0 writes the index if there are several.
        Collective: call it on every rank.

        Raises:
            TrainingError: a rank could not write its files; raised on every rank.
        """
        self._wait_for_pending()
        self._pool.shutdown()
        try:
            for file in self._open.values():
                file.discard() if self._failure else file.finish()
        except (OSError, ValueError) as error:
            self._failure = str(error)
        # A rank that failed takes part in this exchange, too, because the others wait for it.
        failures = [
            (rank, reason) for rank, reason in enumerate(ranks.gather(self._failure)) if reason
        ]
        if failures:
            rank, reason = failures[0]
            raise TrainingError(f"rank {rank} could not write the model: {reason}")
        if ranks.rank == 0 and len(self._files) > 1:
            atomic_file.write_file(self._folder / INDEX, build_index(self._files))

    def _wait_for_pending(self) -> None:
        """Wait for the weight that is being written; keep an error for ``end``."""
        try:
            self._pending.result()
        except (OSError, ValueError) as error:
            self._failure = self._failure or str(error)


def build_index(files: Files) -> str:
    """Return the content of model.safetensors.index.json, as transformers writes it."""
    tensors = [tensor for weights in files.values() for tensor in weights.values()]
    sums = {
        "total_parameters": sum(tensor.numel() for tensor in tensors),
        "total_size": sum(map(count_bytes, tensors)),
    }
    weight_map = {name: file for file, weights in files.items() for name in weights}
    content = {"metadata": sums, "weight_map": weight_map}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _group_into_files(meta_tensors: Mapping[str, Tensor], max_bytes: int) -> Files:
    """Group the weights, in their order, into files of at most ``max_bytes`` bytes or of one
    weight.
    """
    bins: list[dict[str, Tensor]] = [{}]
    file_bytes = 0
    for name, meta_tensor in meta_tensors.items():
        if bins[-1] and file_bytes + count_bytes(meta_tensor) > max_bytes:
            bins.append({})
            file_bytes = 0
        bins[-1][name] = meta_tensor
        file_bytes += count_bytes(meta_tensor)
    if len(bins) == 1:
        return {WEIGHTS: bins[0]}
    stem = WEIGHTS.removesuffix(SUFFIX)
    return {
        f"{stem}-{number:05d}-of-{len(bins):05d}{SUFFIX}": weights
        for number, weights in enumerate(bins, 1)
    }


def _assign_writers(holders: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return a mapping of each file to the rank that writes it: one that holds its weights, so
    that the files are spread over all ranks.
    """
    files_by_ranks: dict[tuple[int, ...], list[str]] = {}
    for file, ranks in holders.items():
        files_by_ranks.setdefault(tuple(ranks), []).append(file)
    return {
        file: ranks[number * len(ranks) // len(files)]
        for ranks, files in files_by_ranks.items()
        for number, file in enumerate(files)
    }


def _interleave_parts(parts: Sequence[Part], file_of: Callable[[Part], str]) -> Iterator[Part]:
    """Yield the first part of each file, then the second, …, so that all writers work
    concurrently.
    """
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(file_of(part), []).append(part)
    for turn in zip_longest(*groups.values()):
        yield from (part for part in turn if part is not None)
