"""Packing of text: documents, each followed by the end token, are cut into windows."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from training.data.dataset import Dataset
from training.data.manifest import Field, Samples
from training.workloads import Column, Packer
from training.workloads.language_model import completions
from training.workloads.language_model.completions import ByteTokenizer, FileTokenizer
from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.scores import iter_examples

if TYPE_CHECKING:
    import pyarrow as pa  # not needed for training

    from training.scores import Block

READ = 1024  # samples per read if no model processes them


class Packing:
    """See ``training.workloads.Packing``; a sample is ``context_length + 1`` tokens.

    For prompts with completions it also has a mask of the targets with a loss.
    """

    columns: Mapping[str, Column] = {"text": Column("text")}
    identity: tuple[str, ...] = ("text",)

    def __init__(self, config: LanguageModelConfig, assets: Path | None) -> None:
        self.config, self.assets = config, assets
        self._files: dict[str, bytes] = {}
        if config.tokenizer == "bytes":
            self.tokenizer: ByteTokenizer | FileTokenizer = ByteTokenizer()
        else:
            path = (assets or Path()) / "tokenizer.json"
            self.tokenizer = FileTokenizer(path)
            self._files["tokenizer.json"] = path.read_bytes()
        self.width = config.context_length + 1
        small = self.tokenizer.size <= 2**16
        self.dtype: Literal["uint16", "uint32"] = "uint16" if small else "uint32"
        fields = {"tokens": Field(dtype=self.dtype, shape=(self.width,))}
        self.completions = config.records == "completions"
        self.info: dict[str, Any] = {
            "tokenizer": config.tokenizer,
            "vocabulary": self.tokenizer.size,
            "files": {n: hashlib.sha256(body).hexdigest() for n, body in self._files.items()},
        }

        if self.completions:
            self.columns, self.identity = completions.COLUMNS, tuple(completions.COLUMNS)
            fields[completions.COUNTED_FIELD] = Field(dtype="uint8", shape=(config.context_length,))
            self.info["records"] = config.records
            if config.attend == "document":  # then samples contain several records
                self.info["attend"] = config.attend
        self.fields: Mapping[str, Field] = fields

    def files(self) -> Mapping[str, bytes]:
        """Return tokenizer.json, if there is one."""
        return self._files

    @property
    def example_fields(self) -> Mapping[str, Field]:
        """Return the fields of ``examples``; documents have no groups."""
        return {"example": Field(dtype="int64")}

    def examples(self, dataset: Dataset) -> "Iterator[Block]":
        """Yield a hash of each document; each document is its own group."""
        for _, hashes, _ in iter_examples(dataset, self.tokenizer.end, READ):
            yield {"example": hashes}

    def packer(self) -> Packer:
        if self.completions:
            return completions.CompletionPacker(
                self.tokenizer, self.width, self.dtype, together=self.config.attend == "document"
            )
        return TextPacker(self)


class TextPacker:
    """Packs documents. Samples overlap by one token, so every token but the first is predicted."""

    def __init__(self, packing: Packing) -> None:
        self._tokenizer, self._width, self._dtype = packing.tokenizer, packing.width, packing.dtype
        self._waiting = np.empty(0, self._dtype)

    def add(self, records: "pa.RecordBatch") -> Samples:
        """Add the ``text`` of these records; return the samples that are now complete."""
        fresh = self._tokenizer.encode_documents(records.column("text")).astype(self._dtype)
        tokens = np.concatenate((self._waiting, fresh))
        stride = self._width - 1
        count = max(0, (len(tokens) - 1) // stride)
        # A copy, because a view would keep all of the tokens in memory.
        self._waiting = tokens[count * stride :].copy()
        if not count:
            return {"tokens": np.empty((0, self._width), tokens.dtype)}
        # A view suffices, because the writer copies it into the shard.
        windows = np.lib.stride_tricks.sliding_window_view(tokens, self._width)
        return {"tokens": windows[::stride][:count]}

    def flush(self) -> Samples:
        """Return the last, shorter sample, padded with end tokens, or none if nothing is left."""
        if len(self._waiting) < 2:
            return {"tokens": np.empty((0, self._width), self._dtype)}
        fill = np.full(self._width - len(self._waiting), self._tokenizer.end, self._dtype)
        return {"tokens": np.concatenate((self._waiting, fill))[None, :]}

    def statistics(self) -> dict[str, Any]:
        """Return no statistics: the model needs none."""
        return {}
