"""Tabular classification as a workload: column statistics, loss, evaluation.

Requests have values as in JSON Lines that the shard step reads. A column that is left out is
missing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.dataset import Dataset, Share
from training.data.manifest import Samples
from training.defaults import default_scores
from training.defaults.request_batch import build_table, extract_record
from training.scores import Block, Metrics
from training.workloads import Column
from training.workloads.column_packing import MISSING
from training.workloads.simple import Simple
from training.workloads.tabular import baselines
from training.workloads.tabular.baselines import Logits
from training.workloads.tabular.column_statistics import FILE, Features
from training.workloads.tabular.model import Classifier, Encoder, select_inputs
from training.workloads.tabular.packing import Packing
from training.workloads.tabular.scores import build_columns, compute_metrics
from trainyard.common.errors import TrainingError


class Workload(Simple):
    """See ``training.workloads.Workload``; the unit is the row."""

    packing: Packing
    at_once = 8192

    def __init__(self, packing: Packing) -> None:
        super().__init__(packing)
        self.group = "group" if self.config.group else None
        path = packing.assets / FILE if packing.assets else None
        self._features = Features.read(path) if path and path.is_file() else None

    @property
    def features(self) -> Features:
        """Return the learned features.

        Raises:
            TrainingError: they were neither learned nor stored with the model.
        """
        if self._features is None:
            raise TrainingError(
                f"{FILE}: is missing beside the model, so the columns' means and vocabularies are "
                "not known; train the model again"
            )
        return self._features

    def fit(self, train: Dataset) -> None:
        """Learn means, standard deviations and vocabularies from the manifests, without rows."""
        self._features = Features.from_statistics(self.config, train.statistics)

    def files(self) -> Mapping[str, bytes]:
        """Return features.json."""
        return {FILE: self.features.render_json()}

    def model(self) -> nn.Module:
        return Classifier(self.config, self.features)

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return select_inputs(batch)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the binary cross-entropy in nats, summed over the rows."""
        labels = batch["label"].to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")

    def scores(
        self,
        model: nn.Module,
        test: Dataset,
        slices: Sequence[str] = (),
        share: Share | None = None,
    ) -> Iterator[Block]:
        """Yield the scores of each row. Slices are category columns, with the data's own values.

        A value that is too rare to have an embedding is in slice ``other``, a missing one in
        ``missing``. The slice ``source``, unless a column has that name, is the input or the raw
        folder of the row.
        """
        return self._score_rows(
            lambda samples: _compute_logits(model, samples), test, slices, share
        )

    def _score_rows(
        self, logits: Logits, test: Dataset, slices: Sequence[str], share: Share | None = None
    ) -> Iterator[Block]:
        """Yield blocks with the scores of the share's rows; ``logits`` computes samples' logits."""
        name_functions = {
            name: self._make_name_reader(name) for name in slices if name in self.config.categories
        }
        by_input = [name for name in slices if name not in name_functions]
        measuring: Any = self  # because its packing is not of the protocol's class
        for samples, identity in default_scores.iter_rows(measuring, test, by_input, share):
            slice_columns = {
                f"slice.{name}": names(samples) for name, names in name_functions.items()
            }
            yield identity | slice_columns | build_columns(logits(samples), samples["label"])

    def metrics(self, blocks: Iterable[Block]) -> Metrics:
        """Return log loss, AUC, accuracy and Brier score."""
        return compute_metrics(blocks)

    def examples(self, dataset: Dataset) -> Iterator[Block]:
        """Yield a hash of each row over all its fields."""
        return self.packing.examples(dataset)

    def _make_name_reader(self, column: str) -> Callable[[Samples], np.ndarray]:
        """Return a function from samples to the values of a category column as strings."""
        index, category = self.config.categories.index(column), self.features.categories[column]
        hashes = np.array([*category.hashes, MISSING], np.int64)
        values = ["missing" if value is None else value for value in category.values]
        order = np.argsort(hashes, kind="stable")
        hashes, words = hashes[order], np.array([*values, "missing"], object)[order]

        def read_names(samples: Samples) -> np.ndarray:
            """Return each row's value; ``other`` if it has no embedding."""
            row_hashes = samples["categories"][:, index]
            indices = np.searchsorted(hashes, row_hashes).clip(max=len(hashes) - 1)
            return np.where(hashes[indices] == row_hashes, words[indices], "other")

        return read_names

    def baseline_scores(
        self, train: Dataset, test: Dataset, limit: int
    ) -> Mapping[str, Iterator[Block]]:
        """Return rows of boosted trees, a logistic regression, and train's base rate."""
        encoder = Encoder(self.features, self.config.clip)
        fitted_logits = baselines.fit_baselines(encoder, train, limit)
        return {name: self._score_rows(logits, test, ()) for name, logits in fitted_logits.items()}

    @property
    def request_columns(self) -> Mapping[str, Column]:
        """Return the columns that the model uses."""
        column_names = (*self.config.categories, *self.config.numbers)
        return {name: self.packing.columns[name] for name in column_names}

    def answers(
        self, model: nn.Module, requests: Sequence[Mapping[str, Any]]
    ) -> Sequence[dict[str, float]]:
        """Return the ``probability`` that each record's label is greater than ``label_above``.

        The columns of label and group may be left out, because the model does not use them.

        Raises:
            DataError: a request does not contain a record, or a column has the wrong type.
        """
        config = self.config
        fill = {config.label: 0.0} | ({config.group: ""} if config.group else {})
        # If the group is also a category that the model uses, a request has to contain it.
        fill = {n: v for n, v in fill.items() if n not in (*config.categories, *config.numbers)}
        records = [extract_record(request, self.packing.columns) | fill for request in requests]
        samples = self.packing.packer().add(build_table(records, self.packing.columns))
        logits = torch.from_numpy(_compute_logits(model, samples)[: len(records)]).double()
        # One at a time, because torch rounds the last elements of a vector differently.
        return [{"probability": logit.sigmoid().item()} for logit in logits]


@torch.inference_mode()
def _compute_logits(model: nn.Module, samples: Samples) -> np.ndarray:
    device = next(model.parameters()).device
    batch = {name: torch.from_numpy(array).to(device) for name, array in samples.items()}
    return model(*select_inputs(batch)).float().cpu().numpy()
