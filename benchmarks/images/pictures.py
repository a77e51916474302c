"""A folder of JPEG files, the same on every machine with this Pillow: smooth textures and noise."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

SIDE, CLASSES = 256, 10
QUALITY = 87


def write(folder: Path, count: int) -> None:
    """``<class>/<number>.jpg``, some 20 KB each, as photographs of that size are."""
    for number in range(count):
        path = folder / f"class{number % CLASSES}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))


def picture(number: int) -> bytes:
    """One image."""
    random = np.random.default_rng(number)
    coarse = Image.fromarray(random.integers(0, 256, (24, 24, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(int)
    noisy = smooth + random.integers(-12, 13, smooth.shape)
    file = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()
