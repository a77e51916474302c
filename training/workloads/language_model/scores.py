"""From nats per token to the metrics, for the model and for the baselines alike."""

import math

import numpy as np

from errors import DataError


class Scores:
    """Adds up what predicting each token cost; keeps four numbers a sample.

    Args:
        token_bytes: bytes of text that each token stands for, shape (vocabulary,).
    """

    def __init__(self, token_bytes: np.ndarray) -> None:
        self._token_bytes = token_bytes
        self._per_sample: list[np.ndarray] = []  # columns: nats, bytes, hits, tokens

    def add(self, targets: np.ndarray, nats: np.ndarray, hits: np.ndarray) -> None:
        """All of shape (samples, tokens): the token, −ln p of it, whether it was the likeliest."""
        columns = (nats, self._token_bytes[targets], hits, np.ones_like(nats))
        self._per_sample.append(np.stack([c.sum(axis=1, dtype=np.float64) for c in columns], 1))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Metric → ``value`` and ``standard_error``.

        bits per byte = Σ nats / ln 2 / Σ bytes; perplexity = exp(Σ nats / Σ tokens). The standard
        error is that of a ratio estimator over samples (Cochran 1977, section 6.3), for perplexity
        by the delta method. Samples of one file are correlated, which it does not see.
        """
        nats, size, hits, tokens = np.concatenate(self._per_sample).T
        if not size.sum():
            raise DataError("the test split holds no text: every token in it stands for 0 bytes")
        loss, loss_error = _ratio(nats, tokens)
        bits, bits_error = _ratio(nats / math.log(2), size)
        accuracy, accuracy_error = _ratio(hits, tokens)
        perplexity = math.exp(loss)
        return {
            "bits_per_byte": {"value": bits, "standard_error": bits_error},
            "loss": {"value": loss, "standard_error": loss_error},
            "perplexity": {"value": perplexity, "standard_error": perplexity * loss_error},
            "next_token_accuracy": {"value": accuracy, "standard_error": accuracy_error},
        }


def _ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float]:
    """Σ above / Σ below, and its standard error."""
    ratio = above.sum() / below.sum()
    count = len(above)
    residual = np.square(above - ratio * below).sum() * count / max(1, count - 1)
    return float(ratio), float(math.sqrt(residual) / below.sum())
