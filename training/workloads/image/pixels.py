"""Convert encoded images to pixels: decode with Pillow, crop, mirror, scale."""

import io
import math
import random
import warnings

import numpy as np
from PIL import Image, UnidentifiedImageError

from training.workloads.image.config import ImageConfig

TRIES = 10
"""Attempts to draw a crop inside the image before the middle of the image is used."""

BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
"""Pillow's errors for images with far more pixels than plausible (``Image.MAX_IMAGE_PIXELS``)."""

Box = tuple[float, float, float, float]
"""Left, upper, right and lower edge, in pixels."""


def explain_undecodable(content: bytes) -> str | None:
    """Return why an image cannot be decoded completely, or None if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content)) as image:
                image.draft("L", (1, 1))  # decodes a JPEG at an eighth of its size; faster
                image.load()
    except UnidentifiedImageError:
        return f"is not an image: its first bytes are {content[:8]!r}"
    except (*BOMBS, OSError, ValueError, SyntaxError, EOFError) as error:
        return f"is an image that cannot be decoded: {error}"
    return None


def decode_crop(content: bytes, config: ImageConfig, seed: int | None) -> np.ndarray:
    """Return a crop of the image, uint8 (size, size, channels).

    It is drawn at random from ``seed``, or is the middle of the image if ``seed`` is None.

    Raises:
        OSError: the image cannot be decoded.
    """
    mode, size = ("RGB" if config.channels == 3 else "L"), config.size
    with Image.open(io.BytesIO(content)) as image:
        draw = None if seed is None else random.Random(seed)
        full_size = image.size
        box = (
            compute_middle_box(full_size, config)
            if draw is None
            else draw_box(full_size, config, draw)
        )
        # A JPEG is decoded at half, a quarter or an eighth of its size if that suffices for the
        # crop.
        scale = min(size / (box[2] - box[0]), size / (box[3] - box[1]))
        image.draft(mode, (math.ceil(full_size[0] * scale), math.ceil(full_size[1] * scale)))
        x, y = image.width / full_size[0], image.height / full_size[1]
        box = (box[0] * x, box[1] * y, box[2] * x, box[3] * y)
        plain = image.convert(mode)
    crop = plain.resize((size, size), Image.Resampling.BILINEAR, box)
    if draw is not None and draw.random() < config.flip:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(crop).reshape(size, size, config.channels)


def compute_middle_box(full_size: tuple[int, int], config: ImageConfig) -> Box:
    """Return the square in the middle of the image, which is used for evaluation."""
    side = min(full_size) * config.evaluated_part
    left_edge, upper = (full_size[0] - side) / 2, (full_size[1] - side) / 2
    return left_edge, upper, left_edge + side, upper + side


def draw_box(full_size: tuple[int, int], config: ImageConfig, draw: random.Random) -> Box:
    """Draw a crop of random area and aspect ratio, or return the middle if no draw fits.

    As in Szegedy et al. 2015, "Going deeper with convolutions".
    """
    width, height = full_size
    ratios = -math.log(config.crop_ratio), math.log(config.crop_ratio)
    for _ in range(TRIES):
        area = draw.uniform(*config.crop_area) * width * height
        ratio = math.exp(draw.uniform(*ratios))
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            left_edge, upper = draw.uniform(0, width - w), draw.uniform(0, height - h)
            return left_edge, upper, left_edge + w, upper + h
    w, h = min(width, height * config.crop_ratio), min(height, width * config.crop_ratio)
    left_edge, upper = (width - w) / 2, (height - h) / 2
    return left_edge, upper, left_edge + w, upper + h
