"""The language model as a workload: packing, loss, evaluation."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from errors import DataError
from training.data.dataset import Dataset
from training.workloads.language_model import baselines
from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.model import Transformer
from training.workloads.language_model.scores import Scores, padding
from training.workloads.language_model.tokenizer import ByteTokenizer, FileTokenizer

EVALUATION_BATCH = 16  # samples
IGNORED = -100  # a target that costs nothing (torch's own default)


class Workload:
    """See ``training.workloads.Workload``; the unit is the token."""

    def __init__(self, config: LanguageModelConfig, assets: Path | None) -> None:
        self.config = config
        self._files: dict[str, bytes] = {}
        if config.tokenizer == "bytes":
            self.tokenizer = ByteTokenizer()
        else:
            path = (assets or Path()) / "tokenizer.json"
            self.tokenizer = FileTokenizer(path)
            self._files["tokenizer.json"] = path.read_bytes()
        self.width = config.context_length + 1
        self.dtype = "uint16" if self.tokenizer.size <= 2**16 else "uint32"
        self.info: dict[str, Any] = {
            "tokenizer": config.tokenizer,
            "vocabulary": self.tokenizer.size,
            "files": {n: hashlib.sha256(body).hexdigest() for n, body in self._files.items()},
        }

    def files(self) -> Mapping[str, bytes]:
        """tokenizer.json, when there is one."""
        return self._files

    def packer(self) -> "TextPacker":
        return TextPacker(self)

    def model(self) -> nn.Module:
        return Transformer(self.config, self.tokenizer.size)

    def loss(self, model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy in nats, summed over the tokens; and their number, padding left out."""
        logits = model(batch[:, :-1]).float()
        counted = ~padding(batch, self.tokenizer.end)
        targets = batch[:, 1:].where(counted, IGNORED).flatten()
        total = F.cross_entropy(
            logits.flatten(0, 1), targets, reduction="sum", ignore_index=IGNORED
        )
        return total, counted.sum()

    def evaluate(self, model: nn.Module, test: Dataset) -> dict[str, dict[str, float]]:
        """Loss, perplexity, bits per byte and accuracy over every token of the split."""
        scores = Scores(self.tokenizer)
        device = next(model.parameters()).device
        with torch.inference_mode():
            for samples in test.batches(EVALUATION_BATCH):
                batch = torch.from_numpy(samples.astype(np.int64)).to(device)
                targets = batch[:, 1:]
                logits = model(batch[:, :-1]).float()
                nats = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
                hits = logits.argmax(-1) == targets
                scores.add(samples, nats.cpu().numpy(), hits.cpu().numpy())
        return scores.metrics()

    def baselines(self, train: Dataset, test: Dataset, limit: int) -> dict[str, dict[str, float]]:
        """A unigram and a bigram model on the same tokens, scored on the very same targets."""
        return baselines.evaluate(train, test, self.tokenizer, limit)


class TextPacker:
    """Documents, each followed by the end token, cut into samples.

    Consecutive samples share one token, so that every token but the first is predicted once.
    """

    def __init__(self, workload: Workload) -> None:
        self._tokenizer, self._width = workload.tokenizer, workload.width
        self._waiting = np.empty(0, dtype=workload.dtype)

    def add(self, record: Mapping[str, Any]) -> np.ndarray:
        """The samples that are complete with this record's ``text``.

        Raises:
            DataError: ``text`` is missing or no string.
        """
        text = record.get("text")
        if not isinstance(text, str):
            raise DataError(f"text: is {type(text).__name__}; expected a string")
        end = np.array([self._tokenizer.end])
        tokens = np.concatenate((self._waiting, self._tokenizer.encode(text), end))
        stride = self._width - 1
        count = max(0, (len(tokens) - 1) // stride)
        self._waiting = tokens[count * stride :].astype(self._waiting.dtype)
        return self._windows(tokens, count)

    def flush(self) -> np.ndarray:
        """The last, shorter sample, filled up with end tokens; none when nothing is left."""
        if len(self._waiting) < 2:
            return self._windows(self._waiting, 0)
        fill = np.full(self._width - len(self._waiting), self._tokenizer.end)
        return np.concatenate((self._waiting, fill))[None, :]

    def _windows(self, tokens: np.ndarray, count: int) -> np.ndarray:
        starts = np.arange(count)[:, None] * (self._width - 1)
        return tokens[starts + np.arange(self._width)]
