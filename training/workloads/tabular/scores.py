"""From logits to the metrics, for the model and for the baselines alike."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from errors import DataError
from training.data.manifest import Samples

Metrics = dict[str, dict[str, float]]


def metrics(logits: np.ndarray, labels: np.ndarray, groups: np.ndarray | None = None) -> Metrics:
    """Metric → ``value`` and ``standard_error``; every argument has the shape (rows,).

    log_loss: mean of −ln p(label), in nats. auc: area under the ROC curve. accuracy: at p = 0.5.
    brier: mean of (p − label)² (Brier 1950). Rows with equal ``groups`` may depend on each other,
    others may not; without groups no two rows may.

    Raises:
        DataError: the labels are all equal, so that no AUC is defined.
    """
    logits, positive = logits.astype(np.float64), labels.astype(bool)
    if positive.all() or not positive.any():
        raise DataError(
            f"all {len(labels)} rows of the test split have the label {int(positive[0])}; "
            "check workload.config.label and label_above, or raise shard.test_share"
        )
    means = {
        "log_loss": np.logaddexp(0, np.where(positive, -logits, logits)),
        "accuracy": (logits > 0) == positive,
        "brier": np.square(0.5 * (1 + np.tanh(logits / 2)) - positive),
    }
    values = {name: float(terms.mean()) for name, terms in means.items()}
    pulls = {name: (terms - values[name]) / len(terms) for name, terms in means.items()}
    values["auc"] = float(roc_auc_score(positive, logits))
    pulls["auc"] = _pulls_on_auc(logits, positive)
    return {
        name: {"value": values[name], "standard_error": _standard_error(pulls[name], groups)}
        for name in ("log_loss", "auc", "accuracy", "brier")
    }


def labels_and_groups(parts: Sequence[Samples]) -> tuple[np.ndarray, np.ndarray | None]:
    """Of stored samples, as ``metrics`` takes them."""
    labels = np.concatenate([samples["label"] for samples in parts])
    if "group" not in parts[0]:
        return labels, None
    return labels, np.concatenate([samples["group"] for samples in parts])


def _standard_error(pulls: np.ndarray, groups: np.ndarray | None) -> float:
    """From how far each row pulls the metric away from its value; NaN for a single group.

    Of a mean this is the textbook's; with groups, Liang & Zeger's (1986) for clusters.
    """
    if groups is not None:
        pulls = np.bincount(np.unique(groups, return_inverse=True)[1], pulls)
    count = len(pulls)
    return math.sqrt(np.square(pulls).sum() * count / (count - 1)) if count > 1 else math.nan


def _pulls_on_auc(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """DeLong, DeLong & Clarke-Pearson 1988, by ranks (Sun & Xu 2014); Obuchowski 1997 for clusters.

    A row pulls by the share of the other class that it is on the right side of, less the mean.
    """
    ranks = rankdata(scores)
    pulls = np.empty(len(scores))
    for chosen, sign in ((positive, 1), (~positive, -1)):
        beaten = (ranks[chosen] - rankdata(scores[chosen])) / (~chosen).sum()
        pulls[chosen] = sign * (beaten - beaten.mean()) / chosen.sum()
    return pulls
