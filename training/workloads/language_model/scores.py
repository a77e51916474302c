"""From nats per token to the metrics, for the model and for the baselines alike."""

import math
from typing import Any

import numpy as np

from errors import DataError
from training.workloads.language_model.tokenizer import Tokenizer


def padding(samples: Any, end: int) -> Any:
    """Which targets (samples[:, 1:]) only fill a sample up: an end that follows an end.

    Works on arrays and tensors of shape (n, width); the result has shape (n, width - 1).
    """
    return (samples[:, :-1] == end) & (samples[:, 1:] == end)


class Scores:
    """Adds up what predicting each token cost; keeps four numbers a sample. Padding is not scored.

    Args:
        tokenizer: says how many bytes of text each token stands for.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._per_sample: list[np.ndarray] = []  # columns: nats, bytes, hits, tokens

    def add(self, samples: np.ndarray, nats: np.ndarray, hits: np.ndarray) -> None:
        """Samples (n, width); −ln p of every target and whether it was the likeliest, one less."""
        counted = ~padding(samples, self._tokenizer.end)
        columns = (nats, self._tokenizer.token_bytes[samples[:, 1:]], hits, counted)
        sums = [np.sum(c, axis=1, where=counted, dtype=np.float64) for c in columns]
        self._per_sample.append(np.stack(sums, axis=1))

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
        perplexity = math.exp(loss) if loss < 709 else math.inf  # the largest that a float holds
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
