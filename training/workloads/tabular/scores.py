"""Compute scores per row and metrics from logits, for the model and the baselines alike."""

from collections.abc import Iterable

import numpy as np

from training.scores import Block, Clusters, Metrics, compute_ratios, compute_standard_error
from trainyard.common.errors import DataError

_SHIFT = 10  # number of the last bits of a float32 that are ignored when it is put into a bin
_HALF = (np.float32(0.5).view(np.uint32) >> np.uint32(_SHIFT)).item()
WAITING = 1 << 18  # rows that are collected before they are counted together


def build_columns(logits: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the score columns for a model's logits, each of the shape (rows,).

    log_loss: −ln p(label), in nats. brier: (p − label)² (Brier 1950). accuracy: with threshold
    p = 0.5.
    """
    logits, positive = logits.astype(np.float64), labels.astype(bool)
    probability, ones = np.exp(-np.logaddexp(0, -logits)), np.ones(len(logits))
    return {
        "log_loss.sum": np.logaddexp(0, np.where(positive, -logits, logits)),
        "log_loss.weight": ones,
        "accuracy.sum": ((logits > 0) == positive).astype(np.float64),
        "accuracy.weight": ones,
        "brier.sum": np.square(probability - positive),
        "brier.weight": ones,
        "probability": probability,
        "label": positive.view(np.uint8),
    }


def compute_metrics(blocks: Iterable[Block]) -> Metrics:
    """Return log loss, AUC, accuracy and Brier score. It reads the blocks twice.

    Rows with equal ``group`` may depend on each other; others are independent.

    Raises:
        DataError: the labels are all equal, so that the AUC is undefined.
    """
    area = RocArea()
    results = compute_ratios(_iter_counted_blocks(blocks, area))
    auc = {"value": area.compute_auc(), "standard_error": area.compute_standard_error(blocks)}
    return {name: results[name] for name in ("log_loss", "accuracy", "brier")} | {"auc": auc}


class RocArea:
    """The area under the ROC curve, from counts of probabilities in at most two million bins.

    A bin is as wide as 2^-13 of its distance from 0 or from 1, whichever is nearer (a float32
    without its last 10 bits). So confident predictions are resolved as well as doubtful ones. Two
    rows in one bin count as equal. So the error of the area is at most half the share of the pairs
    (positive, negative) that are in the same bin and differ: 10^-5 if the probabilities are spread
    over a factor of ten. A probability of 1 - 10^-16 counts as 1.
    """

    def __init__(self) -> None:
        self._bins = np.empty(0, np.int64)
        self._counts: np.ndarray = np.zeros((2, 0))  # by label
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._rows = 0
        self._finite = True

    def add(self, block: Block) -> None:
        """Add the probabilities and labels of a block of rows."""
        self._finite &= bool(np.isfinite(block["probability"]).all())
        self._waiting.append((_assign_bins(block["probability"]), block["label"]))
        self._rows += len(block["label"])
        if self._rows >= WAITING:
            self._count()

    def compute_auc(self) -> float:
        """Return the area, or NaN if a probability is NaN.

        Raises:
            DataError: the labels are all equal.
        """
        self._count()
        negative, positive = self._counts
        totals = self._counts.sum(axis=1)
        if not totals.all():
            raise DataError(
                f"all {int(totals.sum())} rows of the test split have the label "
                f"{int(totals[1] > 0)}; check workload.config.label and label_above, or raise "
                "shard.test_share"
            )
        if not self._finite:
            return float("nan")
        return float(positive @ _count_below(negative) / totals.prod())

    def compute_standard_error(self, blocks: Iterable[Block]) -> float:
        """Return the area's standard error.

        DeLong, DeLong & Clarke-Pearson 1988; for groups Obuchowski 1997.
        """
        clusters = Clusters()
        for block in blocks:
            clusters.add(block["group"], {"pull": self.compute_pulls(block)})
        return compute_standard_error(clusters.compute_sums("pull"))

    def compute_pulls(self, block: Block) -> np.ndarray:
        """Return how much each row moves the area away from its value, (n,). The sum is 0.

        It is the share of the rows of the other class that the row is ranked correctly against,
        minus the mean, divided by the number of rows of its class.
        """
        auc, totals, label = (
            self.compute_auc(),
            self._counts.sum(axis=1),
            block["label"].astype(np.int64),
        )
        negative, positive = self._counts
        beaten = np.stack(
            (1 - _count_below(positive) / totals[1], _count_below(negative) / totals[0])
        )
        share = beaten[label, np.searchsorted(self._bins, _assign_bins(block["probability"]))]
        return (share - auc) / totals[label]

    def _count(self) -> None:
        """Add the waiting rows to the counts."""
        groups = [(self._bins, self._counts)]
        groups += [(bins, np.stack((label == 0, label == 1))) for bins, label in self._waiting]
        bins = np.concatenate([bins for bins, _ in groups])
        weights = np.concatenate([counts for _, counts in groups], axis=1)
        self._bins, bin_indices = np.unique(bins, return_inverse=True)
        self._counts = np.stack([np.bincount(bin_indices, row, len(self._bins)) for row in weights])
        self._waiting, self._rows = [], 0


def _iter_counted_blocks(blocks: Iterable[Block], area: RocArea) -> Iterable[Block]:
    """Yield the blocks unchanged, and add each to ``area``."""
    for block in blocks:
        area.add(block)
        yield block


def _assign_bins(probability: np.ndarray) -> np.ndarray:
    """Return the bin of each probability.

    Bins are the upper bits of floats, because positive floats have the same order as their bits.
    Above a half, the bits of the distance to 1 are used. NaN is put into the last bin.
    """
    probability = probability.astype(np.float64)
    upper = ~(probability <= 0.5)
    near = np.where(upper, 1 - probability, probability).astype(np.float32)
    bits = (near.view(np.uint32) >> np.uint32(_SHIFT)).astype(np.int64)
    return np.where(upper, 2 * _HALF + 1 - np.where(near >= 0, bits, 0), bits)


def _count_below(counts: np.ndarray) -> np.ndarray:
    """Return for each bin the number of rows in lower bins plus half of those in the bin itself."""
    return np.cumsum(counts) - counts / 2
