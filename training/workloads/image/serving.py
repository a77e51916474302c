"""Requests to the image model: ``{"image": "<base64>"}``."""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from training.workloads.image.classes import Classes
from training.workloads.image.config import ImageConfig
from training.workloads.image.pixels import pixels, refuse
from trainyard.common.errors import DataError


def answer(
    config: ImageConfig, classes: Classes, model: nn.Module, request: Mapping[str, Any]
) -> dict[str, Any]:
    """``label``, the likeliest class, and ``probabilities`` of all.

    Raises:
        DataError: the request holds no image.
    """
    text = request.get("image")
    if set(request) != {"image"} or not isinstance(text, str):
        raise DataError('expected {"image": "<an encoded image in base64>"}')
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"image: is {text[:40]!r}, expected base64: {error}") from None
    if reason := refuse(content):
        raise DataError(f"image: {reason}")
    found = torch.from_numpy(pixels(content, config, None).copy())[None]
    logits = model(found.to(next(model.parameters()).device))[0]
    shares = logits.double().softmax(0).tolist()
    best = int(torch.as_tensor(shares).argmax())
    return {
        "label": classes.names[best],
        "probabilities": dict(zip(classes.names, shares, strict=True)),
    }
