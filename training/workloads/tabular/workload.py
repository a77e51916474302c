"""Tabular classification as a workload: what is learned of the columns, loss, evaluation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from errors import TrainingError
from training.data.dataset import Dataset
from training.workloads.tabular import baselines, serving
from training.workloads.tabular.features import FILE, Features
from training.workloads.tabular.model import Classifier, Encoder, inputs
from training.workloads.tabular.packing import Packing
from training.workloads.tabular.scores import Metrics, labels_and_groups, metrics

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

EVALUATION_BATCH = 8192  # samples


class Workload:
    """See ``training.workloads.Workload``; the unit is the row."""

    def __init__(self, packing: Packing) -> None:
        self.packing, self.config = packing, packing.config
        path = packing.assets / FILE if packing.assets else None
        self._features = Features.read(path) if path and path.is_file() else None

    @property
    def features(self) -> Features:
        """Raises: TrainingError: nothing was learned yet, and none travelled with the model."""
        if self._features is None:
            raise TrainingError(
                f"{FILE}: is missing beside the model, so the columns' means and vocabularies are "
                "not known; train the model again"
            )
        return self._features

    def fit(self, train: Dataset) -> None:
        """Means, standard deviations and vocabularies, from the manifests' statistics alone."""
        self._features = Features.of(self.config, train.statistics)

    def files(self) -> Mapping[str, bytes]:
        """features.json."""
        return {FILE: self.features.content()}

    def model(self) -> nn.Module:
        return Classifier(self.config, self.features)

    def units(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The number of rows."""
        return torch.tensor(len(batch["label"]))

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return inputs(batch)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Binary cross-entropy in nats, summed over the rows."""
        labels = batch["label"].to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")

    def flops(self, model: nn.Module) -> float:
        """Forward and backward of a row: 6 for each weight of the linear layers."""
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        return 6.0 * sum(layer.weight.numel() for layer in linear)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """None: the model is small and its layers differ."""
        return ()

    def tensor_parallel(self, model: nn.Module, mesh: "DeviceMesh") -> None:
        raise TrainingError("workload tabular: its model is not split; set tensor_parallel to 1")

    def stage(self, model: nn.Module, index: int, count: int) -> nn.Module:
        raise TrainingError("workload tabular: its model is not split; set pipeline_parallel to 1")

    def export(self, weights: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """As they are: there is no common format for such a model."""
        return weights, {}

    def restore(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return weights

    def evaluate(self, model: nn.Module, test: Dataset) -> Metrics:
        """Log loss, AUC, accuracy and Brier score over every row of the split."""
        device = next(model.parameters()).device
        logits, scored = [], []
        with torch.inference_mode():
            for samples in test.batches(EVALUATION_BATCH):
                batch = {n: torch.from_numpy(array).to(device) for n, array in samples.items()}
                logits.append(model(*inputs(batch)).float().cpu().numpy())
                scored.append(samples)
        return metrics(np.concatenate(logits), *labels_and_groups(scored))

    def baselines(self, train: Dataset, test: Dataset, limit: int) -> dict[str, dict[str, float]]:
        """A logistic regression on the same features, and the training split's base rate."""
        encoder = Encoder(self.features, self.config.clip)
        return baselines.evaluate(encoder, train, test, limit)

    def answer(self, model: nn.Module, request: Mapping[str, Any]) -> dict[str, float]:
        """The probability that a record's label is 1."""
        return serving.answer(self.packing, model, request)
