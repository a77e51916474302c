"""What has to be equal in every process: hashes, and the scores but for their rounding."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from training.trying.forward import CLOSE
from training.trying.trial import Trial

PLACES = {
    "the initial weights": "model",
    "the order of the weights": "model",
    "the order of the examples": "scores",
    "the names of the examples": "examples",
    "the scores": "scores",
}
"""What is compared → the method that it comes from."""


def digests(trial: Trial) -> dict[str, str | list[float]]:
    """Map what is compared to its hash; the scores to themselves.

    Sums in float32 end in other bits where a process has other threads or other addresses.
    """
    model = trial.model().eval()
    state = model.state_dict()
    rows = list(trial.one.scores(model, trial.test))
    names = np.concatenate([block["example"] for block in trial.one.examples(trial.test)])
    found: dict[str, str | list[float]] = {
        "the initial weights": weights(state),
        "the order of the weights": _hash([name.encode() for name in state]),
        "the order of the examples": _hash(block["example"].tobytes() for block in rows),
        "the names of the examples": _hash([np.sort(names).tobytes()]),
    }
    columns = [n for n in rows[0] if rows[0][n].dtype.kind == "f"]
    found["the scores"] = [float(one) for block in rows for n in columns for one in block[n]]
    return found


def agree(one: str | list[float], other: str | list[float]) -> bool:
    """Whether two processes gave the same."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return len(one) == len(other) and np.allclose(one, other, rtol=CLOSE, atol=1e-9, equal_nan=True)


def weights(state: dict[str, torch.Tensor]) -> str:
    """Of a model's state, whatever the order of its names."""
    return _hash(
        part
        for name in sorted(state)
        for part in (name.encode(), state[name].reshape(-1).contiguous().view(torch.uint8).numpy())
    )


def _hash(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
