"""Turns text into tokens, with each token's number of bytes: plain bytes, or a tokenizer.json."""

import json
from array import array
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from trainyard.common.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa  # not needed by a training: 0.1 s and 30 MB of each rank

BATCH_BYTES = 2**20  # of text at once: an encoding takes about 100 bytes per token
END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


class Tokenizer(Protocol):
    """Interface: ``end`` separates documents; ``token_bytes[id]`` is 0 for tokens without text."""

    size: int
    end: int
    token_bytes: np.ndarray

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, each followed by the end token, in one array."""


class ByteTokenizer:
    """Tokenizer whose tokens are the bytes of the UTF-8 text; one more token ends a document."""

    size = 257
    end = 256
    token_bytes = np.array([1] * 256 + [0], dtype=np.int64)

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, each followed by the end token, uint16."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        if not len(lengths):
            return np.empty(0, np.uint16)
        buffer = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\0")
        buffer = memoryview(buffer.buffers()[2])[: int(lengths.sum()) + len(lengths) - 1]
        tokens = np.empty(len(buffer) + 1, np.uint16)
        tokens[:-1] = np.frombuffer(buffer, np.uint8)
        tokens[np.cumsum(lengths + 1) - 1] = self.end
        return tokens


class FileTokenizer:
    """A byte-level tokenizer.json, like GPT-2's and Llama 3's.

    Raises:
        DataError: the file is missing, is not byte-level (so the bytes of a token are unknown,
            and bits per byte with them), or has no token that ends a document.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as HuggingFaceTokenizer

        if not path.is_file():
            raise DataError(f"{path}: no such tokenizer; set workload.tokenizer to its S3 prefix")
        description = json.loads(path.read_text(encoding="utf-8"))
        if "ByteLevel" not in json.dumps(description.get("decoder")):
            raise DataError(
                f"{path}: is not byte-level (its decoder has no ByteLevel), so the bytes of a "
                "token are not known; use a byte-level BPE tokenizer"
            )
        self._tokenizer = HuggingFaceTokenizer.from_file(str(path))
        # "<|endoftext|>" in a text is text; read as the token it would end the document there.
        self._tokenizer.encode_special_tokens = True
        self.size = self._tokenizer.get_vocab_size()
        special = {token["id"] for token in description.get("added_tokens", ())}
        ends = [self._tokenizer.token_to_id(name) for name in END_NAMES]
        self.end = next((end for end in ends if end is not None), -1)
        if self.end < 0:
            raise DataError(f"{path}: has none of {', '.join(END_NAMES)} to end a document with")
        # In the byte-level alphabet every character of a token stands for one byte.
        tokens = [self._tokenizer.id_to_token(index) or "" for index in range(self.size)]
        sizes = [0 if index in special else len(token) for index, token in enumerate(tokens)]
        self.token_bytes = np.array(sizes, dtype=np.int64)

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, each followed by the end token, uint32."""
        import pyarrow.compute as pc

        total = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False))
        cuts = np.flatnonzero(np.diff(total // BATCH_BYTES)) + 1
        tokens = array("I")  # converts a list of numbers in half of numpy's time
        for start, stop in pairwise([0, *cuts.tolist(), len(texts)]):
            group = texts.slice(start, stop - start).to_pylist()
            encodings = self._tokenizer.encode_batch_fast(group, add_special_tokens=False)
            for encoding in encodings:
                tokens.fromlist(encoding.ids)
                tokens.append(self.end)
        return np.frombuffer(tokens, np.uint32)
