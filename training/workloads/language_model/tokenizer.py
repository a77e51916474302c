"""Text to tokens and how many bytes each token stands for: plain bytes, or a tokenizer.json."""

import json
from pathlib import Path
from typing import Protocol

import numpy as np

from errors import DataError

END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


class Tokenizer(Protocol):
    """``end`` separates documents; ``token_bytes[id]`` is 0 for tokens that stand for no text."""

    size: int
    end: int
    token_bytes: np.ndarray

    def encode(self, text: str) -> np.ndarray: ...


class ByteTokenizer:
    """Every byte of the UTF-8 text is a token; one more token ends a document."""

    size = 257
    end = 256
    token_bytes = np.array([1] * 256 + [0], dtype=np.int64)

    def encode(self, text: str) -> np.ndarray:
        """Tokens 0 … 255, without the end token."""
        return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.uint16)


class FileTokenizer:
    """A byte-level tokenizer.json, as GPT-2's and Llama 3's are.

    Raises:
        DataError: the file is missing, is not byte-level (so the bytes of a token are not known,
            and with them bits per byte), or has no token that ends a document.
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

    def encode(self, text: str) -> np.ndarray:
        """Token ids, without the end token."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.uint32)
