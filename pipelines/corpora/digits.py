"""1,797 scans of handwritten digits from scikit-learn: one folder of PNG files per digit.

They are the test set of the UCI Machine Learning Repository's "Optical Recognition of Handwritten
Digits" (Alpaydin & Kaynak 1998): 8 x 8 pixels of 17 greys, by 13 writers.
"""

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from pipelines.corpora import Corpus

WHITEST = 16  # value of white in scikit-learn's table


def build() -> Corpus:
    """Build the files ``<digit>/<number>.png``, the layout of an ImageFolder."""
    dataset = load_digits()
    files = {
        f"{digit}/{number:04d}.png": encode_png(pixels)
        for number, (digit, pixels) in enumerate(zip(dataset.target, dataset.images, strict=True))
    }
    return Corpus(files, "scans of handwritten digits, 8 x 8 pixels, from scikit-learn")


def encode_png(pixels: np.ndarray) -> bytes:
    """Encode an array (height, width) of 0 to WHITEST as a grey PNG image."""
    file = io.BytesIO()
    Image.fromarray((pixels * 255 / WHITEST).round().astype(np.uint8)).save(file, "PNG")
    return file.getvalue()
