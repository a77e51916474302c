"""Requests to the language model that ask for the loss of a text.

{"text": "def f(x):"}        a document, packed as the shard step packs a single one
{"prompt": "…", "completion": "…"}   if records are completions: the completion's loss
{"tokens": [102, 32, …]}     a sample as stored in a shard: context_length + 1 tokens
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.manifest import Samples
from training.workloads.language_model.completions import COUNTED_FIELD
from training.workloads.language_model.packing import Packing
from training.workloads.language_model.scores import padding
from trainyard.common.errors import DataError

BATCH = 16  # samples at a time, as in the evaluation: a long text must not fill the memory


def answers(
    packing: Packing, model: nn.Module, requests: Sequence[Mapping[str, Any]]
) -> list[dict[str, float]]:
    """Return ``bits_per_byte`` of each request, and ``nats``, ``bytes`` and ``tokens`` behind it.

    They are the same sums as the evaluation's for the same samples.

    Raises:
        DataError: a request holds neither a text nor tokens, or nothing to predict.
    """
    pairs = [_samples(packing, request) for request in requests]
    samples = np.concatenate([tokens for tokens, _ in pairs])
    sizes = [
        int(np.sum(packing.tokenizer.token_bytes[tokens[:, 1:]], where=target_mask))
        for tokens, target_mask in pairs
    ]
    if 0 in sizes:
        raise DataError("the request holds no text whose bytes could be predicted; send more")
    starts = range(0, len(samples), BATCH)
    nats = np.concatenate([_nats(model, samples[start : start + BATCH]) for start in starts])
    ends = np.cumsum([len(tokens) for tokens, _ in pairs])
    return [
        _answer(nats[end - len(target_mask) : end], target_mask, size)
        for end, (_, target_mask), size in zip(ends, pairs, sizes, strict=True)
    ]


def costs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return −ln p of each target, (n, t), from logits (n, t, vocabulary)."""
    flat = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.view_as(targets)


def _answer(nats: np.ndarray, target_mask: np.ndarray, size: int) -> dict[str, float]:
    total = float(np.sum(nats, where=target_mask, dtype=np.float64))
    return {
        "bits_per_byte": total / math.log(2) / size,
        "nats": total,
        "bytes": size,
        "tokens": int(target_mask.sum()),
    }


def _nats(model: nn.Module, samples: np.ndarray) -> np.ndarray:
    """Return −ln p of every target, shape (n, width - 1)."""
    batch = torch.from_numpy(samples.astype(np.int64)).to(next(model.parameters()).device)
    return costs(model(batch[:, :-1]).float(), batch[:, 1:]).cpu().numpy()


def _samples(packing: Packing, request: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return (samples (n, context_length + 1) in the stored type, which of their targets count)."""
    if set(request) == {*packing.columns} and all(isinstance(t, str) for t in request.values()):
        fields = _pack_texts(packing, request)
        if COUNTED_FIELD in fields:
            return fields["tokens"], fields[COUNTED_FIELD].astype(bool)
        samples = fields["tokens"]
    elif set(request) == {"tokens"} and isinstance(request["tokens"], list):
        size, tokens = packing.tokenizer.size, request["tokens"]
        if len(tokens) != packing.width or not all(
            type(token) is int and 0 <= token < size for token in tokens
        ):
            raise DataError(f"tokens: expected {packing.width} integers from 0 to {size - 1}")
        samples = np.array([tokens], packing.dtype)
    else:
        field_names = ", ".join(sorted(map(str, request))) or "nothing"
        texts = ", ".join(f'"{name}": "…"' for name in packing.columns)
        raise DataError(
            f'the request holds {field_names}; expected {{{texts}}}, or {{"tokens": […]}} with '
            f"{packing.width} numbers"
        )
    return samples, ~padding(samples, packing.tokenizer.end)


def _pack_texts(packing: Packing, texts: Mapping[str, str]) -> Samples:
    import pyarrow as pa  # not needed by a training

    packer = packing.packer()
    try:
        record = pa.record_batch({n: pa.array([text], pa.string()) for n, text in texts.items()})
    except UnicodeEncodeError:
        names = ", ".join(texts)
        raise DataError(
            f"{names}: holds half of a surrogate pair, which is not a character"
        ) from None
    complete, remaining = packer.add(record), packer.flush()
    return {name: np.concatenate([complete[name], remaining[name]]) for name in complete}
