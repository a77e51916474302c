"""Base class of a workload that defines only its columns, model, inputs and loss.

Such a workload may be a single module, which the recipe then names. The shard step and the recipe's
check import it without torch, so import torch where it is used, and keep the network in a separate
module:

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

Everything else in ``training.workloads`` has a default here, and may be overridden. The module may
also define its own ``Packing`` (see ``column_packing``) or ``SPEC``.
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
    from training.workloads import Workload as Complete

    Batch = Mapping[str, Tensor]
else:
    Complete = object  # at run time, so that optional members are missing unless defined


class NoSettings(BaseModel):
    """Settings of a workload that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Simple(Complete):
    """See ``training.workloads.Workload``; the unit is the sample."""

    columns: Mapping[str, Column] = {}
    """Raw columns. ``column_packing`` describes the field of each in a batch."""

    settings: type[BaseModel] = NoSettings
    """Type of ``workload.config``, and so of ``self.config``."""

    better: Mapping[str, Literal["lower", "higher"]] = {"loss": "lower"}
    """For each metric of ``measure``, whether lower or higher values are better. The first one is
    the primary metric.
    """

    fitted_baselines: tuple[Literal["constant"], ...] = ()
    """Baselines to fit. ``constant``: the same outputs for every sample, those with the lowest loss
    on the training split. For a cross-entropy these are the class shares, for a squared error the
    mean."""

    group: str | None = None
    """Category column whose equal values mark examples that depend on each other."""

    by_batch = False
    """See ``training.workloads.Workload``."""

    at_once = 256
    """Number of samples that are scored together."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "answer" in vars(cls):
            raise TrainingError(
                f"{cls.__module__}: Workload has answer(model, request), which is no longer "
                "called; implement answers(model, requests), which returns a list of answers"
            )

    @classmethod
    @cache
    def derive_spec(cls) -> WorkloadSpec:
        """Return the ``SPEC`` of a module that does not define one.

        Samples depend on settings only if the module defines a packing. With columns alone, a
        change of settings does not require sharding again.
        """
        optional = not any(field.is_required() for field in cls.settings.model_fields.values())
        has_packing = hasattr(sys.modules[cls.__module__], "Packing")
        return WorkloadSpec(
            config=cls.settings,
            metrics=cls.better,
            primary_metric=next(iter(cls.better)),
            baselines=cls.fitted_baselines,
            packed_with=() if optional and not has_packing else None,
            slices=lambda config: ("source",),
            folder_slice="source",
        )

    @classmethod
    @cache
    def derive_packing(cls) -> type[column_packing.Packing]:
        """Return the ``Packing`` of a module that does not define one, derived from the columns."""
        members = {"columns": cls.columns, "__module__": cls.__module__}
        return type("Packing", (column_packing.Packing,), members)

    def __init__(self, packing: "Packing") -> None:
        self.packing, self.config = packing, packing.config
        self.sample: Samples | None = None
        """Training sample with which ``flops`` runs the model."""

    def model(self) -> "nn.Module":
        """Return the model with fresh weights."""
        raise self._make_unwritten_error("model")

    def inputs(self, batch: "Batch") -> "tuple[Tensor, ...]":
        """Return the model's inputs."""
        raise self._make_unwritten_error("inputs")

    def loss(self, outputs: "Tensor", batch: "Batch") -> "Tensor":
        """Return the loss, summed over the samples."""
        raise self._make_unwritten_error("loss")

    def measure(
        self, outputs: "Tensor", batch: "Batch"
    ) -> "Mapping[str, Tensor | tuple[Tensor, Tensor]]":
        """Return each metric's value for each sample, (n,), or its (sum, weight) for each.

        Default: ``loss``, the loss of each sample divided by its units.
        """
        from training.defaults import default_scores

        return default_scores.compute_losses(self, outputs, batch)

    def fit(self, train: "Dataset") -> None:
        """Keep a training sample for ``flops``."""
        self.sample = train.read([0])

    def files(self) -> Mapping[str, bytes]:
        """Return the packing's files."""
        return self.packing.files()

    def units(self, batch: "Batch") -> "Tensor":
        """Return the number of samples."""
        from training.defaults import default_scores

        return default_scores.count_batch_samples(batch)

    def flops(self, model: "nn.Module") -> float:
        """Return three times the floating-point operations of a forward pass of one sample."""
        from training.defaults import flop_count

        return flop_count.count_flops(self, model, self.sample)

    def blocks(self, model: "nn.Module") -> "Sequence[nn.Module]":
        """Return no blocks: none are known."""
        return ()

    def tensor_parallel(self, model: "nn.Module", mesh: "DeviceMesh") -> None:
        raise self._make_unsplit_error("tensor_parallel")

    def stage(self, model: "nn.Module", index: int, count: int) -> "nn.Module":
        raise self._make_unsplit_error("pipeline_parallel", "stage")

    def export(
        self, weights: "Mapping[str, Tensor]"
    ) -> "tuple[Mapping[str, Tensor], dict[str, Any]]":
        """Return the weights unchanged."""
        return weights, {}

    def export_parts(self, names: Sequence[str]) -> "Iterable[Sequence[str]]":
        """Return each weight as its own part."""
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
        """Yield a row per sample with the values of ``measure``.

        The slice ``source`` is the input that the sample comes from.
        """
        from training.defaults import default_scores

        return default_scores.score_samples(self, model, test, slices, share)

    def metrics(self, blocks: "Iterable[Block]") -> "Metrics":
        """Return Σ sum / Σ weight of each metric."""
        from training.scores import compute_ratios

        return compute_ratios(blocks)

    def examples(self, dataset: "Dataset") -> "Iterator[Block]":
        """Yield a hash of each sample, over all its fields."""
        from training.defaults import default_scores

        for _, identity in default_scores.iter_rows(self, dataset):
            yield identity if self.group else {"example": identity["example"]}

    def baselines(
        self, train: "Dataset", test: "Dataset", limit: int
    ) -> dict[str, dict[str, float]]:
        """Return the metrics of the baselines in ``fitted_baselines``."""
        if not self.fitted_baselines:
            return {}
        from training.defaults import constant_baseline

        return {"constant": constant_baseline.evaluate_constant(self, train, test, limit)}

    @property
    def request_columns(self) -> Mapping[str, Column]:
        """Return the columns that ``inputs`` reads, or all if the workload prepares samples."""
        from training.defaults import request_batch

        return request_batch.find_used_columns(self)

    def request(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"record": record}

    def answers(
        self, model: "nn.Module", requests: Sequence[Mapping[str, Any]]
    ) -> Sequence[dict[str, Any]]:
        """Return ``outputs`` for each request ``{"record": {column: value, …}}``.

        Columns that the model does not use may be left out.
        """
        from training.defaults import request_batch

        batch = request_batch.build_batch(self, requests, next(model.parameters()).device)
        outputs = model(*self.inputs(batch))[: len(requests)]
        return [{"outputs": values} for values in outputs.tolist()]

    def _make_unwritten_error(self, method: str) -> NotImplementedError:
        """Return the error for a required method that the workload does not define."""
        return NotImplementedError(f"{type(self).__module__}: Workload has no {method}()")

    def _make_unsplit_error(self, setting: str, method: str = "") -> TrainingError:
        """Return the error for a method that would split the model."""
        return TrainingError(
            f"{type(self).__module__}: Workload has no {method or setting}(), so its model is not "
            f"split: set {setting} to 1"
        )
