"""What has to be equal in every process, as hashes."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from training.trying.trial import Trial

PLACES = {
    "the initial weights": "model",
    "the order of the weights": "model",
    "the order of the examples": "scores",
    "the names of the examples": "examples",
    "the scores": "scores",
}
"""What is hashed → the method that it comes from."""


def digests(trial: Trial) -> dict[str, str]:
    """What is hashed → its hash."""
    model = trial.model().eval()
    state = model.state_dict()
    rows = list(trial.one.scores(model, trial.test))
    names = np.concatenate([block["example"] for block in trial.one.examples(trial.test)])
    found = {
        "the initial weights": weights(state),
        "the order of the weights": _hash([name.encode() for name in state]),
        "the order of the examples": _hash(block["example"].tobytes() for block in rows),
        "the names of the examples": _hash([np.sort(names).tobytes()]),
    }
    columns = [n for n in rows[0] if rows[0][n].dtype.kind == "f"]
    found["the scores"] = _hash(block[name].tobytes() for block in rows for name in columns)
    return found


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
