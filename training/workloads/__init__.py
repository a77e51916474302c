"""A workload defines what is trained; the rest of Trainyard does not know what a token is.

A workload is a package of three modules:

``config``    holds ``SPEC: WorkloadSpec``; light, because recipes are checked with it
``packing``   holds ``Packing``: raw records become samples; without torch, the shard step runs it
``workload``  holds ``Workload``: model, loss, scores

A recipe names it by its package (``my_package.my_workload``), or by its bare name if it is one of
those in this folder. Most workloads need not implement all of this: ``training.workloads.simple``
has defaults for everything except columns, model, inputs and loss. A workload that derives from it
may be a single module; missing parts of ``SPEC`` and ``Packing`` are derived from its class.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ValidationError

from training.workloads.workload_description import Column as Column
from training.workloads.workload_description import WorkloadSpec as WorkloadSpec
from trainyard.common.errors import TrainingError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    from training.data.dataset import Dataset, Share
    from training.data.manifest import Field, Samples
    from training.scores import Block, Metrics


class Packer(Protocol):
    """Turn the records of one raw object and split into samples, in the records' order."""

    def add(self, records: "pa.RecordBatch") -> "Samples":
        """Add records; return the samples that are now complete, which may be none."""

    def flush(self) -> "Samples":
        """Return the remaining samples."""

    def statistics(self) -> dict[str, Any]:
        """Return counts over all records so far, as JSON; ``Workload.fit`` receives them."""


class Packing(Protocol):
    """The part of a workload that the shard step uses."""

    columns: Mapping[str, Column]
    """Raw columns that it reads."""
    identity: tuple[str, ...]
    """Columns whose values decide whether two records are duplicates; empty if this cannot be
    decided.
    """
    fields: Mapping[str, "Field"]
    """Fields of a sample."""
    info: dict[str, Any]
    """Information needed to read the samples again; written into every manifest and model.

    ``groups_ordered: true`` says that groups are numbered in an order in which neighbours are
    similar.
    """
    assets: Path | None
    """Folder with further files (a tokenizer.json, or what ``fit`` learned)."""
    config: Any
    """Settings that it was created with. Optional: only ``simple.Simple`` and
    ``WorkloadSpec.base_differences`` need it."""

    def __init__(self, config: BaseModel, assets: Path | None) -> None: ...

    def files(self) -> Mapping[str, bytes]:
        """Return files that must be stored with the dataset, by name."""

    def packer(self) -> Packer:
        """Return a packer for the records of one raw object and split."""

    @property
    def example_fields(self) -> "Mapping[str, Field]":
        """The columns of ``examples``: ``example`` int64, and ``group`` if the data have groups.

        Optional, like ``examples``.
        """

    def examples(self, dataset: "Dataset") -> "Iterator[Block]":
        """Yield the same blocks as ``Workload.examples``, without torch. Optional.

        ``WorkloadSpec.has_summary`` says that it exists.
        """


class Workload(Protocol):
    """The part of a workload that train and evaluate use."""

    packing: Packing

    by_batch: bool
    """True if the trained weights depend on micro_batch: the model draws torch's random
    numbers by other means than torch's modules (``functional.dropout``), or a sample's loss
    depends on the other samples in the micro-batch (InfoNCE). Optional, default False.
    """

    loss_parallel: bool
    """True if ``loss`` accepts outputs that are a DTensor, sharded over the classes, and
    computes their loss by ``functional.cross_entropy`` (or log_softmax and nll_loss); no rank
    then has whole logits. Optional; by default ``loss`` gets outputs that ``tensor_parallel``
    left sharded as whole tensors.
    """

    follows_weights: bool
    """True if the model computes in the type of its weights, from the embedding to the outputs.
    With precision bfloat16 under fsdp it then runs without autocast, in bfloat16 throughout; any
    other model's operations use the types that autocast chooses. Inputs are not cast. Optional,
    default False.
    """

    def __init__(self, packing: Packing) -> None: ...

    def fit(self, train: "Dataset") -> None:
        """Learn what the model needs to know about the training split from its statistics."""

    def files(self) -> Mapping[str, bytes]:
        """Return files that must be stored with the model: the dataset's, and what ``fit``
        learned.
        """

    def model(self) -> "torch.nn.Module":
        """Return the model with fresh weights, drawn from torch's current random state."""

    def prepare(
        self, sample: "Mapping[str, np.ndarray]", seed: int | None
    ) -> "Mapping[str, np.ndarray]":
        """Prepare one stored sample for the model: decode, crop, augment. Optional.

        Called in threads of the loader (``training.data.loader``); ``units``, ``inputs`` and
        ``loss`` receive its results, stacked. Every sample of a batch has the same fields, shapes
        and types. Randomness must come from ``seed`` alone, which is different for each sample and
        epoch; if it is None, prepare the sample as for evaluation.
        """

    def units(self, batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """Return how many units (tokens, rows) n samples have, 0-dim; the loss is averaged over
        units.
        """

    def inputs(self, batch: "Mapping[str, torch.Tensor]") -> "tuple[torch.Tensor, ...]":
        """Return the model's inputs for n samples in stored types; the first dimension is n."""

    def model_kwargs(self, batch: "Mapping[str, torch.Tensor]") -> "Mapping[str, torch.Tensor]":
        """Return the keyword inputs of every pipeline stage's forward pass, in addition to its
        inputs or the previous stage's output; the first dimension is n. Optional.
        """

    def loss(self, outputs: "torch.Tensor", batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """Return the sum of the losses over n samples' units, 0-dim; outputs are float32 or wider.

        It is a sum, not a mean, so that the losses of ranks and micro-batches with unequal counts
        add up correctly.
        """

    def flops(self, model: "torch.nn.Module") -> float:
        """Return the floating-point operations per unit, forward and backward, of the model."""

    def blocks(self, model: "torch.nn.Module") -> "Sequence[torch.nn.Module]":
        """Return the repeated parts of the model, which are sharded, recomputed and compiled one
        by one; may be empty.
        """

    def embeddings(self, model: "torch.nn.Module") -> "Sequence[torch.nn.Module]":
        """Return the embedding tables in ``model``, a part of the model, that are only looked up
        (not tied to the outputs).

        Optional. Each is sharded separately, and gathered once per micro-batch.
        """

    def tensor_parallel(self, model: "torch.nn.Module", mesh: "DeviceMesh") -> None:
        """Split the model's weights over the ranks of a one-dimensional mesh, in place.

        Use torch's styles (``torch.distributed.tensor.parallel``). Outputs may be DTensors.

        Raises:
            TrainingError: the model does not support it.
        """

    def sequence_parallel(self, model: "torch.nn.Module", mesh: "DeviceMesh") -> None:
        """Split like ``tensor_parallel``, and shard the tensors between the split layers along the
        sequence.

        Optional; called instead of ``tensor_parallel`` if the training sets ``sequence_parallel``.
        """

    def context_parallel(self, model: "torch.nn.Module", mesh: "DeviceMesh") -> "torch.Tensor":
        """Make the model compute this rank's part of each sequence, in place. Optional.

        The ranks of the one-dimensional mesh have the same weights and samples. Afterwards
        ``model``, whole or a stage, takes the inputs of a ``part`` and returns its outputs; the
        model itself handles what crosses parts (attention), forward and backward.

        Returns:
            The positions of this rank's part within the sequence, (t,).

        Raises:
            TrainingError: the model does not support it.
        """

    def part(
        self, batch: "Mapping[str, torch.Tensor]", index: int, count: int
    ) -> "Mapping[str, torch.Tensor]":
        """Return the part of n samples that context rank ``index`` of ``count`` computes.

        Optional, together with ``context_parallel``. ``units``, ``inputs``, ``model_kwargs`` and
        ``loss`` accept it like a batch. Every unit is in one part, so that units and losses of the
        parts add up to those of the batch.
        """

    def stage(self, model: "torch.nn.Module", index: int, count: int) -> "torch.nn.Module":
        """Return stage ``index`` of ``count`` of the model; parameters keep their names.

        A parameter that two stages have counts as one parameter: its gradients are summed.

        Raises:
            TrainingError: the model does not support it.
        """

    def export(
        self, weights: "Mapping[str, torch.Tensor]"
    ) -> "tuple[Mapping[str, torch.Tensor], dict[str, Any]]":
        """Return the model's state under other libraries' names, and entries for config.json.

        If ``export_parts`` exists, it may be given only a part of the state. It is first called
        with tensors on the device ``meta``, which have types and shapes but no values.
        """

    def export_parts(self, names: "Sequence[str]") -> "Iterable[Sequence[str]]":
        """Return the state's names in parts that ``export`` can be given one at a time. Optional.

        The parts' results together must equal the result for the whole state. A model is then
        exported by many ranks, none of which has all of it. If this method is missing or None, or
        belongs to a base class of the one that defines ``export``, rank 0 gathers all weights at
        once.
        """

    def export_adapters(
        self, adapters: "Mapping[str, torch.Tensor]"
    ) -> "Mapping[str, torch.Tensor]":
        """Return ``<layer>.lora_A`` and ``<layer>.lora_B`` under the layers' names in ``export``'s
        model.

        Optional, for a workload whose ``export`` renames layers.
        """

    def restore(self, weights: "Mapping[str, torch.Tensor]") -> "Mapping[str, torch.Tensor]":
        """Return the state that ``export`` was given.

        Raises:
            KeyError: a weight is missing.
        """

    def scores(
        self,
        model: "torch.nn.Module",
        test: "Dataset",
        slices: Sequence[str] = (),
        share: "Share | None" = None,
    ) -> "Iterator[Block]":
        """Yield blocks with a row for every example of the split; columns are in
        ``training.scores``.

        It streams: memory does not grow with the split. Rows, their order, and their ``example``,
        ``group`` and slices depend on the split alone: ``model`` may be any other model that takes
        the same samples. It runs on the model's device.

        Args:
            slices: those of the spec's slices that are requested.
            share: yield only this share's rows. The rows of all shares, one after the other, are
                the rows of the whole split, bit for bit (``Dataset.stream`` cuts between batches).
                An example of several samples belongs to the share in which it begins. The argument
                is optional: if it exists, the evaluation scores on all GPUs at once.
        """

    def metrics(self, blocks: "Iterable[Block]") -> "Metrics":
        """Return the spec's metrics of the rows that ``scores`` yielded, with standard errors over
        groups.

        Args:
            blocks: rows of ``scores``; may be iterated twice.
        """

    def examples(self, dataset: "Dataset") -> "Iterator[Block]":
        """Yield blocks with a row for each example of any split: ``example``, a hash of its
        content, and ``group`` if the data have groups.

        Equal content has equal ``example``, also in different splits, so that leaked examples are
        found.
        """

    def baselines(
        self, train: "Dataset", test: "Dataset", limit: int
    ) -> dict[str, dict[str, float]]:
        """Return each baseline's metrics on the test split, ``{baseline: {metric: value}}``; the
        baselines are fitted on ``limit`` train units.
        """

    def baseline_scores(
        self, train: "Dataset", test: "Dataset", limit: int
    ) -> "Mapping[str, Iterator[Block]]":
        """Return a mapping of baseline to its rows, in the form of ``scores``.

        Optional: it replaces ``baselines`` if ``WorkloadSpec.baselines_scored`` is set.
        """

    def answers(
        self, model: "torch.nn.Module", requests: Sequence[Mapping[str, Any]]
    ) -> Sequence[dict[str, Any]]:
        """Return the responses to an endpoint's requests, JSON objects, in one pass of the model.
        Optional.

        Raises:
            DataError: a request is not understood; they are then passed again in smaller batches.
        """

    @property
    def request_columns(self) -> Mapping[str, Column]:
        """The raw columns of a request, for batch scoring. Optional, together with ``request``."""

    def request(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the request for a record of ``request_columns``, whose values are JSON's."""


def takes_share(workload: Workload) -> bool:
    """Return whether the workload's ``scores`` takes a ``share`` of the split."""
    return "share" in signature(workload.scores).parameters


def load_spec(name: str) -> WorkloadSpec:
    """Return the torch-free description of a workload.

    Raises:
        TrainingError: the workload does not exist.
    """
    return _load_attribute(name, "config", "SPEC")


def load_packing(name: str, config: Mapping[str, Any], assets: Path | None = None) -> Packing:
    """Return the packing, which turns the workload's records into samples.

    Raises:
        TrainingError: the workload does not exist, or a setting is wrong.
    """
    try:
        settings = load_spec(name).config.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise TrainingError(
            f"workload_config.{field}: is {first['input']!r}; {first['msg']}"
        ) from None
    return _load_attribute(name, "packing", "Packing")(settings, assets)


def load_workload(name: str, config: Mapping[str, Any], assets: Path | None = None) -> Workload:
    """Return the workload itself.

    Raises:
        TrainingError: the workload does not exist, or a setting is wrong.
    """
    return _load_attribute(name, "workload", "Workload")(load_packing(name, config, assets))


def parse_settings(text: str) -> dict[str, Any]:
    """Parse a workload's settings as passed to a job: a JSON object.

    Raises:
        TrainingError: ``text`` is not a JSON object.
    """
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise TrainingError(f"workload_config: is not JSON ({error}): {text!r}") from None
    if not isinstance(settings, dict):
        raise TrainingError(f"workload_config: is {text}; expected a JSON object of settings")
    return settings


def _load_attribute(name: str, part: str, attribute: str) -> Any:
    """Return the workload's ``attribute``, from its module ``part`` or that of its Workload.

    Raises:
        TrainingError: the workload does not exist, or does not have this attribute.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
        raise TrainingError(f"workload {name!r}: is not a name of a Python package")
    package = name if "." in name else f"{__name__}.{name}"
    module = _import_part(name, package, part)
    if not hasattr(module, "Workload"):
        return getattr(_import_part(name, f"{package}.{part}", part), attribute)
    if hasattr(module, attribute):
        return getattr(module, attribute)
    if not hasattr(module.Workload, "derive_spec"):
        raise TrainingError(
            f"workload {name!r}: {package} has a Workload and no {attribute}; derive the Workload "
            f"from training.workloads.simple.Simple, or define {attribute}"
        )
    derived_spec: WorkloadSpec = module.Workload.derive_spec()
    return derived_spec if attribute == "SPEC" else module.Workload.derive_packing()


def _import_part(name: str, module: str, part: str) -> ModuleType:
    """Import a workload's module; raise TrainingError if it does not exist."""
    package = module.removesuffix(f".{part}")
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.{part}".startswith(error.name):
            raise  # the workload exists; a module that it imports does not
        shipped_names = sorted(
            path.parent.name for path in Path(__file__).parent.glob("*/config.py")
        )
        raise TrainingError(
            f"workload {name!r}: there is no {package}.{part}; shipped with Trainyard: "
            f"{', '.join(shipped_names)}; your own: package.module, workload.source names its "
            "folder"
        ) from None
