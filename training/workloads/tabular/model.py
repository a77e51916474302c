"""A model of embedded categories and normalised numbers with flags of missing ones, then an MLP.

The normalisation and the vocabularies are part of the model, so its inputs are samples as stored.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.dropout import Dropout
from training.workloads.tabular.column_statistics import Features
from training.workloads.tabular.config import TabularConfig


def select_inputs(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return (categories, numbers) of stored samples. A kind without columns has width 0."""
    none = batch["label"][:, None][:, :0]
    return batch.get("categories", none.long()), batch.get("numbers", none.float())


class Encoder(nn.Module):
    """Turns stored samples into ids of category values and normalised numbers."""

    means: Tensor
    scales: Tensor

    def __init__(self, features: Features, clip: float) -> None:
        super().__init__()
        self.clip = clip
        categories, numbers = features.categories.values(), features.numbers.values()
        self.sizes = [1 + len(category.hashes) for category in categories]
        """Number of ids of each category."""
        for index, category in enumerate(categories):
            hashes = torch.tensor(category.hashes, dtype=torch.int64)
            self.register_buffer(f"hashes_{index}", hashes, persistent=False)
        means = torch.tensor([number.mean for number in numbers])
        scales = torch.tensor([number.standard_deviation for number in numbers])
        self.register_buffer("means", means, persistent=False)
        self.register_buffer("scales", scales, persistent=False)

    def encode_hashes(self, hashes: Tensor) -> Tensor:
        """Return the ids of hashes, both (n, categories) int64. A value without an id gets 0."""
        columns = [torch.zeros_like(hashes[:, :0])]
        for index, column in enumerate(hashes.T):
            known_hashes = self.get_buffer(f"hashes_{index}")
            if not len(known_hashes):
                columns.append(torch.zeros_like(column)[:, None])
                continue
            indices = torch.searchsorted(known_hashes, column.contiguous()).clamp(
                max=len(known_hashes) - 1
            )
            columns.append(torch.where(known_hashes[indices] == column, indices + 1, 0)[:, None])
        return torch.cat(columns, dim=1)

    def normalize_numbers(self, numbers: Tensor) -> Tensor:
        """Return (n, 2 × numbers): normalised numbers (0 if missing), then flags (1 if missing).

        They are normalised with the mean and the standard deviation of the training split.
        """
        missing = numbers.isnan()
        z_scores = ((numbers - self.means) / self.scales).clamp(-self.clip, self.clip)
        return torch.cat((z_scores.masked_fill(missing, 0), missing.float()), dim=1)


class Classifier(nn.Module):
    """Maps categories (n, categories) int64 and numbers (n, numbers) float32 to logits (n,)."""

    starts: Tensor

    def __init__(self, config: TabularConfig, features: Features) -> None:
        super().__init__()
        self.encoder = Encoder(features, config.clip)
        sizes = self.encoder.sizes
        starts = torch.tensor([0, *sizes]).cumsum(0)[:-1]
        # One table for all columns, so that one call looks up all of them.
        self.embedding = nn.Embedding(sum(sizes), config.embedding)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.register_buffer("starts", starts, persistent=False)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        width = len(sizes) * config.embedding + 2 * len(features.numbers)
        layers: list[nn.Module] = []
        for hidden in config.hidden:
            layers += [nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.GELU()]
            layers.append(Dropout(config.dropout))
            width = hidden
        self.hidden, self.out = nn.Sequential(*layers), nn.Linear(width, 1)

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        ids = self.encoder.encode_hashes(categories) + self.starts
        embeddings = self.embedding_dropout(self.embedding(ids).flatten(1))
        features = torch.cat((embeddings, self.encoder.normalize_numbers(numbers)), dim=1)
        return self.out(self.hidden(features))[:, 0]
