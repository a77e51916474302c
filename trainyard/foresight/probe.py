"""The machine at hand as a device: what ``python -m training.probe`` has measured of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainyard.common.errors import RecipeError
from trainyard.foresight.gpus import Gpu, add
from trainyard.foresight.layouts import Machine
from trainyard.foresight.question import Offer

_GPU = TypeAdapter(Gpu)


def offer(place: Path) -> Offer:
    """The machine of a probe's file, at no price; settings know its device afterwards.

    Raises:
        RecipeError: the file cannot be read, or is none of a probe's.
    """
    try:
        gpu = read(json.loads(place.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"--machine {place}: cannot be read: {error}; give what python -m training.probe prints"
        ) from None
    add(gpu)
    machine = Machine(gpu=gpu.name, gpus=gpu.gpus_per_node, node_gbps=gpu.node_gbps)
    return Offer(name=gpu.name, machine=machine, usd_hour=0.0, estimated=False)


def read(tree: Mapping[str, Any]) -> Gpu:
    """The device, of the JSON that a probe prints.

    Raises:
        ValueError: it has no ``gpu``, or a field of it is missing or of another kind.
    """
    if "gpu" not in tree:
        raise ValueError("it has no gpu")
    try:
        return _GPU.validate_python(tree["gpu"])
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"gpu.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
