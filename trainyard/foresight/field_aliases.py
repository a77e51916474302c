"""Other words for a Setting's fields and values, as frameworks and papers use them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.foresight.cloud_machines import GPUS

TABLE: Mapping[str, Any] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
"""names: a field's names in Transformers, Megatron and torchtitan. values: of a field, our value
and its other words, in lower case. devices: names without a memory size, and the device of that
name's usual instances: the larger A100, the H100 of p5, the V100 of p3."""

NAMES = {name: own_name for own_name, others in TABLE["names"].items() for name in others}
"""Other name of a field → ours."""

_WORDS = {
    # The type, as True and 1 are one key to Python.
    (field, type(word), word): own_name
    for field, values in TABLE["values"].items()
    for own_name, words in values.items()
    for word in words
}


def device(name: str) -> str:
    """Return the name in ``gpus.csv`` for a foreign one, such as "NVIDIA H100 80GB", "a100_40gb" or
    "RTX 4090"; ``name`` itself if none matches.
    """
    plain = re.sub(r"\b(NVIDIA|SXM\d?|PCIE|HBM\d\w?|TENSOR CORE|GPU)\b", "", name.upper())
    plain = re.sub(r"(\d+)\s?GB\b", r"\1", re.sub(r"[\s_]+", " ", plain).strip(" -"))
    # The table has A100-80 for "A100 80GB", and RTX4090 for "RTX 4090".
    for candidate in (plain.replace(" ", "-"), plain.replace(" ", "")):
        short = re.sub(r"-+", "-", candidate).strip("-")
        short = TABLE["devices"].get(short, short)
        without = re.sub(r"-\d+$", "", short)
        for gpu_name in (short, without):
            if gpu_name in GPUS:
                return gpu_name
    return name


def translate_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with our names and values; unknown ones stay as they are.

    A field that is null is left out, unless null is one of its values. If ``gpus`` is missing, it
    is the number that the degrees of parallelism need.
    """
    result: dict[str, Any] = {}
    for name, value in fields.items():
        own_name = NAMES.get(name, name)
        if own_name in result:
            raise ValueError(f"{name}: another field gives the same value; leave one of them out")
        key = value if isinstance(value, bool | None) else str(value).lower()
        word = _WORDS.get((own_name, type(key), key), value)
        if word is not None:
            result[own_name] = word
    if isinstance(result.get("gpu"), str):
        result["gpu"] = device(result["gpu"])
    if str(fields.get("optimizer")).lower().startswith("paged"):
        result.setdefault("offload", "optimizer")
    if "gpus" not in result:
        degrees = [result.get(name) or 1 for name in ("tensor", "pipeline", "context", "data")]
        if all(isinstance(degree, int) for degree in degrees):
            result["gpus"] = degrees[0] * degrees[1] * degrees[2] * degrees[3]
    return result
