"""A workload says what is trained; the rest of Trainyard does not know what a token is.

A workload is a package of three modules:

``config``    holds ``SPEC: WorkloadSpec``; light, because recipes are checked with it
``packing``   holds ``Packing``: raw records become samples; without torch, the shard step runs it
``workload``  holds ``Workload``: model, loss, scores

It is named in a recipe by its package (``my_package.my_workload``), or by its bare name when it is
one of those in this folder. Most need not write all of this: ``training.workloads.simple`` has
defaults for all but columns, model, inputs and loss, and a workload that derives from it may be one
module, from whose class what it lacks of ``SPEC`` and ``Packing`` follows.
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
    """Turns the records of one raw object and split into samples, in the order they come in."""

    def add(self, records: "pa.RecordBatch") -> "Samples":
        """The samples that are complete with these records; there may be none."""

    def flush(self) -> "Samples":
        """What is left."""

    def statistics(self) -> dict[str, Any]:
        """What was counted over all records so far, as JSON; ``Workload.fit`` sees it again."""


class Packing(Protocol):
    """What the shard step asks of a workload."""

    columns: Mapping[str, Column]
    """The raw columns that it reads."""
    identity: tuple[str, ...]
    """Columns in which two duplicates are equal; empty when there is no telling."""
    fields: Mapping[str, "Field"]
    """The fields that a sample has."""
    info: dict[str, Any]
    """Written into every manifest and model: what it takes to read the samples again.

    ``groups_ordered: true`` says that groups are numbered in an order, and neighbours are alike.
    """
    assets: Path | None
    """Folder with further files (a tokenizer.json, or what ``fit`` learned)."""

    def __init__(self, config: BaseModel, assets: Path | None) -> None: ...

    def files(self) -> Mapping[str, bytes]:
        """Files that must travel with the dataset, by name."""

    def packer(self) -> Packer: ...

    @property
    def example_fields(self) -> "Mapping[str, Field]":
        """The columns of ``examples``: ``example`` int64, and ``group`` where the data have groups.

        Optional, as ``examples`` is.
        """

    def examples(self, dataset: "Dataset") -> "Iterator[Block]":
        """What ``Workload.examples`` gives, without torch. Optional.

        ``WorkloadSpec.summarised`` says that it is there.
        """


class Workload(Protocol):
    """What train and evaluate ask of a workload."""

    packing: Packing

    by_batch: bool
    """Whether the model draws random numbers of torch's by other means than torch's modules
    (``functional.dropout``), so that a training with another micro_batch is another one; optional,
    False without it."""

    loss_parallel: bool
    """Whether ``loss`` takes outputs that are a DTensor, sharded over the classes, and asks
    ``functional.cross_entropy`` (or log_softmax and nll_loss) for their loss: no rank holds whole
    logits then. Optional; without it ``loss`` gets what ``tensor_parallel`` left sharded whole."""

    follows_weights: bool
    """Whether the model computes in the type of its weights, from the embedding to the outputs.
    With precision bfloat16 under fsdp it runs without autocast then, in bfloat16 throughout; any
    other model's operations take what autocast gives them. Inputs are not cast. Optional, False
    without it."""

    def __init__(self, packing: Packing) -> None: ...

    def fit(self, train: "Dataset") -> None:
        """Learn what the model needs to know of the training split from its statistics."""

    def files(self) -> Mapping[str, bytes]:
        """Files that must travel with the model: the dataset's, and what ``fit`` learned."""

    def model(self) -> "torch.nn.Module":
        """The model with fresh weights from torch's current random state."""

    def prepare(
        self, sample: "Mapping[str, np.ndarray]", seed: int | None
    ) -> "Mapping[str, np.ndarray]":
        """What the model takes of one stored sample: decoded, cropped, augmented; optional.

        Called in threads of the loader (``training.data.preparation``); ``units``, ``inputs`` and
        ``loss`` see what it gave, stacked. Every sample of a batch has the same
        fields, shapes and types. All that is random follows from ``seed``, which no other sample
        and epoch has; None, as an evaluation sees the sample.
        """

    def units(self, batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """How many units (tokens, rows) n samples hold: what the loss is a mean over, 0-dim."""

    def inputs(self, batch: "Mapping[str, torch.Tensor]") -> "tuple[torch.Tensor, ...]":
        """What the model takes of n samples in stored types; the first dimension is n."""

    def beside(self, batch: "Mapping[str, torch.Tensor]") -> "Mapping[str, torch.Tensor]":
        """What every pipeline stage's forward pass takes by name, beside its inputs or what the
        stage before gives; the first dimension is n. Optional.
        """

    def loss(self, outputs: "torch.Tensor", batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """The sum of the losses over the units of n samples, 0-dim; outputs are float32 or wider.

        A sum, not a mean: ranks and micro-batches with unequal counts add up right.
        """

    def flops(self, model: "torch.nn.Module") -> float:
        """Floating-point operations of a unit, forward and backward, of the whole model."""

    def blocks(self, model: "torch.nn.Module") -> "Sequence[torch.nn.Module]":
        """The repeated parts: sharded, recomputed and compiled one by one. May be none."""

    def embeddings(self, model: "torch.nn.Module") -> "Sequence[torch.nn.Module]":
        """Tables that are looked up and used in no other way (not tied to the outputs), of what
        there is of the model; optional. Each is sharded by itself, and gathered once a micro-batch.
        """

    def tensor_parallel(self, model: "torch.nn.Module", mesh: "DeviceMesh") -> None:
        """Split the model's weights over the ranks of a one-dimensional mesh, in place.

        torch's styles do it (``torch.distributed.tensor.parallel``). Outputs may be DTensors.

        Raises:
            TrainingError: the model is not made for it.
        """

    def sequence_parallel(self, model: "torch.nn.Module", mesh: "DeviceMesh") -> None:
        """As ``tensor_parallel``, and what lies between the split layers is sharded along the
        sequence; optional, called instead where the training says ``sequence_parallel``.
        """

    def context_parallel(self, model: "torch.nn.Module", mesh: "DeviceMesh") -> "torch.Tensor":
        """Let the model compute this rank's part of each sequence, in place; optional.

        The ranks of the one-dimensional mesh hold the same weights and samples. ``model``, whole or
        a stage, then takes the inputs of a ``part`` and gives its outputs; what crosses parts
        (attention) is its business, forward and backward. Returns the positions of this rank's part
        within the sequence, (t,).

        Raises:
            TrainingError: the model is not made for it.
        """

    def part(
        self, batch: "Mapping[str, torch.Tensor]", index: int, count: int
    ) -> "Mapping[str, torch.Tensor]":
        """What context rank ``index`` of ``count`` takes of n samples; optional, as
        ``context_parallel`` is.

        ``units``, ``inputs``, ``beside`` and ``loss`` take it as they take a batch. Every unit is
        in one part: units and losses of the parts add up to those of the batch.
        """

    def stage(self, model: "torch.nn.Module", index: int, count: int) -> "torch.nn.Module":
        """Stage ``index`` of ``count`` of the model; parameters keep their names.

        A parameter that two stages hold is one parameter: its gradients are added up.

        Raises:
            TrainingError: the model is not made for it.
        """

    def export(
        self, weights: "Mapping[str, torch.Tensor]"
    ) -> "tuple[Mapping[str, torch.Tensor], dict[str, Any]]":
        """The model's state under names that others know, and what config.json says of it.

        ``export_parts`` says that it may be given a part of the state, too; it is asked what comes
        of tensors on the device ``meta`` first, which have types and shapes and no numbers.
        """

    def export_parts(self, names: "Sequence[str]") -> "Iterable[Sequence[str]]":
        """The names of the state in parts that ``export`` can be given one at a time; optional.

        What the parts give is together what the whole state gives. A model is then exported by
        many ranks, none of which has all of it. Without it, where it is None, and where it belongs
        to a class that another ``export`` derives from, rank 0 takes all weights at once.
        """

    def export_adapters(
        self, adapters: "Mapping[str, torch.Tensor]"
    ) -> "Mapping[str, torch.Tensor]":
        """``<layer>.lora_A`` and ``<layer>.lora_B`` under the layers' names in ``export``'s model;
        optional, for a workload whose ``export`` renames layers.
        """

    def restore(self, weights: "Mapping[str, torch.Tensor]") -> "Mapping[str, torch.Tensor]":
        """The state that ``export`` was given. Raises: KeyError: a weight is missing."""

    def scores(
        self,
        model: "torch.nn.Module",
        test: "Dataset",
        slices: Sequence[str] = (),
        share: "Share | None" = None,
    ) -> "Iterator[Block]":
        """Every example of the split, in blocks of rows; ``training.scores`` names the columns.

        It streams: memory does not grow with the split. Which rows come, in which order, with which
        ``example``, ``group`` and slices depends on the split alone: ``model`` may be another one
        that takes the same samples. On the model's device. ``slices`` are among the spec's.

        With a ``share`` only the rows of that share of the split come: those of all shares, one
        behind the other, are the rows of the whole, bit for bit; so the model sees the batches
        that it sees there (``Dataset.stream`` cuts shares between them), and an example of several
        samples belongs to the share that it begins in. The argument is optional: with it the
        evaluation scores on all GPUs at once, without it in one process.
        """

    def metrics(self, blocks: "Iterable[Block]") -> "Metrics":
        """The spec's metrics of the rows that ``scores`` gave; ``blocks`` may be read twice.

        Standard errors count groups, not rows.
        """

    def examples(self, dataset: "Dataset") -> "Iterator[Block]":
        """``example`` of every example of any split, and ``group`` where the data have groups.

        Equal content, equal ``example``, also in another split; so leaked examples are found.
        """

    def sketches(self, dataset: "Dataset") -> "Iterator[np.ndarray]":
        """MinHash sketches of the examples, uint32 (examples, places), in pieces; optional.

        ``WorkloadSpec.sketched`` says that it is there: near-duplicates are found by it.
        """

    def baselines(
        self, train: "Dataset", test: "Dataset", limit: int
    ) -> dict[str, dict[str, float]]:
        """Baseline → metric → value on the test split, fitted on ``limit`` units of train."""

    def baseline_scores(
        self, train: "Dataset", test: "Dataset", limit: int
    ) -> "Mapping[str, Iterator[Block]]":
        """Baseline → its rows instead of the model's: the ones that ``scores`` gives, in its order.

        Optional: ``WorkloadSpec.baselines_scored`` says that it is there, and is asked instead of
        ``baselines`` then.
        """

    def answer(self, model: "torch.nn.Module", request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to an endpoint's request, both JSON objects; optional (see serving).

        Raises:
            DataError: the request is not one that the workload understands.
        """


def takes_share(workload: Workload) -> bool:
    """Whether its ``scores`` takes a ``share`` of the split."""
    return "share" in signature(workload.scores).parameters


def spec(name: str) -> WorkloadSpec:
    """The torch-free description of a workload.

    Raises:
        TrainingError: there is no such workload.
    """
    return _part(name, "config", "SPEC")


def load_packing(name: str, config: Mapping[str, Any], assets: Path | None = None) -> Packing:
    """How the workload's records become samples.

    Raises:
        TrainingError: there is no such workload, or a setting is wrong.
    """
    try:
        typed = spec(name).config.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise TrainingError(
            f"workload_config.{field}: is {first['input']!r}; {first['msg']}"
        ) from None
    return _part(name, "packing", "Packing")(typed, assets)


def load(name: str, config: Mapping[str, Any], assets: Path | None = None) -> Workload:
    """The workload itself.

    Raises:
        TrainingError: there is no such workload, or a setting is wrong.
    """
    return _part(name, "workload", "Workload")(load_packing(name, config, assets))


def read_settings(text: str) -> dict[str, Any]:
    """A workload's settings as a job is given them: a JSON object.

    Raises:
        TrainingError: ``text`` is none.
    """
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise TrainingError(f"workload_config: is no JSON ({error}): {text!r}") from None
    if not isinstance(settings, dict):
        raise TrainingError(f"workload_config: is {text}; expected a JSON object of settings")
    return settings


def _part(name: str, part: str, attribute: str) -> Any:
    """``attribute`` of the workload: of its module ``part``, or of the one that has a Workload."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
        raise TrainingError(f"workload {name!r}: is no name of a Python package")
    package = name if "." in name else f"{__name__}.{name}"
    whole = _imported(name, package, part)
    if not hasattr(whole, "Workload"):
        return getattr(_imported(name, f"{package}.{part}", part), attribute)
    if hasattr(whole, attribute):
        return getattr(whole, attribute)
    if not hasattr(whole.Workload, "described"):
        raise TrainingError(
            f"workload {name!r}: {package} has a Workload and no {attribute}; derive the Workload "
            f"from training.workloads.simple.Simple, or write {attribute}"
        )
    described: WorkloadSpec = whole.Workload.described()
    return described if attribute == "SPEC" else whole.Workload.packed()


def _imported(name: str, module: str, part: str) -> ModuleType:
    package = module.removesuffix(f".{part}")
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.{part}".startswith(error.name):
            raise  # the workload is there; something that it imports is not
        shipped = sorted(path.parent.name for path in Path(__file__).parent.glob("*/config.py"))
        raise TrainingError(
            f"workload {name!r}: there is no {package}.{part}; shipped with Trainyard: "
            f"{', '.join(shipped)}; your own: package.module, workload.source names its folder"
        ) from None
