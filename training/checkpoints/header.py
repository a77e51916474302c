"""The beginning of a safetensors file: what is in it, and where. No torch here."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from training.checkpoints.blocks import Torn
from training.checkpoints.table import Part

OFFSETS = "DCP_SHARDING_INFO"
"""Where torch's HuggingFaceStorageReader looks for a part's offsets: it reads our files, too."""
LONGEST = 2**30  # bytes; more than any file of tensors begins with


def made(parts: Mapping[str, Part], order: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """The beginning of a safetensors file; and where, behind it, each tensor lies."""
    offsets = {name: {"saved_offsets": parts[name].offsets} for name in order}
    said: dict[str, object] = {
        "__metadata__": {"format": "pt", "DCP_VERSION": "1.0", OFFSETS: json.dumps(offsets)}
    }
    places, end = {}, 0
    for name in order:
        part = parts[name]
        places[name], end = end, end + part.bytes
        said[name] = {
            "dtype": part.dtype,
            "shape": part.sizes,
            "data_offsets": [places[name], end],
        }
    text = json.dumps(said, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, places


def parsed(read: Callable[[int, int], memoryview]) -> tuple[dict[str, Any], int]:
    """A safetensors file's header, and where its data begin.

    Args:
        read: gives the bytes from one place to another.

    Raises:
        Torn: it is none.
    """
    length = int.from_bytes(read(0, 8), "little")
    if length > LONGEST:
        raise Torn(f"a header of {length} bytes is none of safetensors'")
    try:
        return json.loads(bytes(read(8, 8 + length))), 8 + length
    except ValueError:
        raise Torn("a header is no JSON") from None
