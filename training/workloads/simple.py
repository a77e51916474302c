"""A workload of which only columns, model, inputs and loss have to be written.

It may stand in one module, which is then what the recipe names. The shard step and the recipe's
check import it without torch, so import torch where it is used, and keep the network in a module of
its own:

    class Workload(Simple):
        columns = {"pixels": Column("list", length=64), "digit": Column("number", dtype="int64")}

        def model(self):
            from my_package.network import Network
            return Network()

        def inputs(self, batch):
            return (batch["pixels"],)

        def loss(self, outputs, batch):
            from torch.nn.functional import cross_entropy
            return cross_entropy(outputs, batch["digit"], reduction="sum")

Whatever else ``training.workloads`` asks for has a default here, and may be overridden; the module
may also have a ``Packing`` (see ``by_columns``) or a ``SPEC`` of its own.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from training.workloads import Column, WorkloadSpec, column_packing
from trainyard.common.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh

    from training.data.dataset import Dataset, Share
    from training.data.manifest import Samples
    from training.scores import Block, Metrics
    from training.workloads import Packing

    Batch = Mapping[str, Tensor]


class NoSettings(BaseModel):
    """A workload without settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Simple:
    """See ``training.workloads.Workload``; the unit is the sample."""

    columns: Mapping[str, Column] = {}
    """The raw columns; ``by_columns`` says what the batch has of each."""

    settings: type[BaseModel] = NoSettings
    """Type of ``workload.config``; ``self.config`` is one."""

    better: Mapping[str, Literal["lower", "higher"]] = {"loss": "lower"}
    """Metrics that ``measure`` gives → which values are better; the first is the primary one."""

    fitted: tuple[Literal["constant"], ...] = ()
    """Baselines. ``constant``: the same outputs for every sample, those of the least loss on the
    training split; of a cross-entropy the classes' shares, of a squared error the mean."""

    group: str | None = None
    """Category column whose equal values mark examples that depend on each other."""

    by_batch = False
    """See ``training.workloads.Workload``."""

    at_once = 256
    """Samples that are scored together."""

    @classmethod
    @cache
    def described(cls) -> WorkloadSpec:
        """What a recipe needs to know of it: the module's ``SPEC`` where it has none.

        Samples depend on settings by a packing of one's own only: with columns alone no change of
        them shards again.
        """
        optional = not any(field.is_required() for field in cls.settings.model_fields.values())
        own = hasattr(sys.modules[cls.__module__], "Packing")
        return WorkloadSpec(
            config=cls.settings,
            metrics=cls.better,
            primary_metric=next(iter(cls.better)),
            baselines=cls.fitted,
            packed_with=() if optional and not own else None,
            slices=lambda config: ("source",),
            folder_slice="source",
        )

    @classmethod
    @cache
    def packed(cls) -> type[column_packing.Packing]:
        """That of the columns: the module's ``Packing`` where it has none. It is a part of it."""
        told = {"columns": cls.columns, "__module__": cls.__module__}
        return type("Packing", (column_packing.Packing,), told)

    def __init__(self, packing: "Packing") -> None:
        self.packing, self.config = packing, packing.config
        self.sample: Samples | None = None
        """One training sample, which ``flops`` runs the model with."""

    def model(self) -> "nn.Module":
        """The model with fresh weights."""
        raise self._unwritten("model")

    def inputs(self, batch: "Batch") -> "tuple[Tensor, ...]":
        """What the model takes."""
        raise self._unwritten("inputs")

    def loss(self, outputs: "Tensor", batch: "Batch") -> "Tensor":
        """The sum of the losses of the samples."""
        raise self._unwritten("loss")

    def measure(
        self, outputs: "Tensor", batch: "Batch"
    ) -> "Mapping[str, Tensor | tuple[Tensor, Tensor]]":
        """Metric → value of each sample, (n,), or (sum, weight) of each.

        By default ``loss``: the loss of each sample alone, over its units.
        """
        from training.defaults import default_scores

        return default_scores.losses(self, outputs, batch)

    def fit(self, train: "Dataset") -> None:
        """Keep a sample for ``flops``."""
        self.sample = train.read([0])

    def files(self) -> Mapping[str, bytes]:
        """The packing's."""
        return self.packing.files()

    def units(self, batch: "Batch") -> "Tensor":
        """The number of samples."""
        from training.defaults import default_scores

        return default_scores.count(batch)

    def flops(self, model: "nn.Module") -> float:
        """Counted in a forward pass of one sample; the backward pass has twice as many."""
        from training.defaults import flop_count

        return flop_count.counted(self, model, self.sample)

    def blocks(self, model: "nn.Module") -> "Sequence[nn.Module]":
        """None."""
        return ()

    def tensor_parallel(self, model: "nn.Module", mesh: "DeviceMesh") -> None:
        raise self._unsplit("tensor_parallel")

    def stage(self, model: "nn.Module", index: int, count: int) -> "nn.Module":
        raise self._unsplit("pipeline_parallel", "stage")

    def export(
        self, weights: "Mapping[str, Tensor]"
    ) -> "tuple[Mapping[str, Tensor], dict[str, Any]]":
        """As they are."""
        return weights, {}

    def export_parts(self, names: Sequence[str]) -> "Iterable[Sequence[str]]":
        """Each weight by itself."""
        return [[name] for name in names]

    def restore(self, weights: "Mapping[str, Tensor]") -> "Mapping[str, Tensor]":
        return weights

    def scores(
        self,
        model: "nn.Module",
        test: "Dataset",
        slices: Sequence[str] = (),
        share: "Share | None" = None,
    ) -> "Iterator[Block]":
        """A row is a sample, with what ``measure`` gives. Slice ``source``: its input."""
        from training.defaults import default_scores

        return default_scores.scores(self, model, test, slices, share)

    def metrics(self, blocks: "Iterable[Block]") -> "Metrics":
        """Σ sum / Σ weight of each metric."""
        from training.scores import ratios

        return ratios(blocks)

    def examples(self, dataset: "Dataset") -> "Iterator[Block]":
        """Samples, over all their fields."""
        from training.defaults import default_scores

        for _, identity in default_scores.rows(self, dataset):
            yield identity if self.group else {"example": identity["example"]}

    def baselines(
        self, train: "Dataset", test: "Dataset", limit: int
    ) -> dict[str, dict[str, float]]:
        """Those of ``fitted``."""
        if not self.fitted:
            return {}
        from training.defaults import constant_baseline

        return {"constant": constant_baseline.evaluate(self, train, test, limit)}

    def answer(self, model: "nn.Module", request: Mapping[str, Any]) -> dict[str, Any]:
        """``outputs`` of ``{"record": {column: value, …}}``; columns that ``inputs`` does not look
        at may be left out.
        """
        from training.defaults import request_batch

        batch = request_batch.batch_of(self, request, next(model.parameters()).device)
        return {"outputs": model(*self.inputs(batch))[0].tolist()}

    def _unwritten(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__module__}: Workload has no {method}()")

    def _unsplit(self, setting: str, method: str = "") -> TrainingError:
        return TrainingError(
            f"{type(self).__module__}: Workload has no {method or setting}(), so its model is not "
            f"split: set {setting} to 1"
        )
