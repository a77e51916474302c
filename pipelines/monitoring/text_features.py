"""Features of a text: its length, and the shares of kinds of its characters.

Characters of one text depend on each other, so they are not counted over all texts, but become
numbers of each.
"""

from collections.abc import Mapping
from typing import Any

KINDS = {
    "letters": str.isalpha,
    "digits": str.isdigit,
    "spaces": str.isspace,
    "not_ascii": lambda character: not character.isascii(),
}


def of_texts(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the features of a record's texts, as ``text.bytes`` and ``text.letters``."""
    features: dict[str, float] = {}
    for name, text in record.items():
        if not isinstance(text, str):
            continue
        features[f"{name}.bytes"] = len(text.encode(errors="replace"))
        for kind, is_kind in KINDS.items():
            features[f"{name}.{kind}"] = sum(map(is_kind, text)) / max(len(text), 1)
    return features
