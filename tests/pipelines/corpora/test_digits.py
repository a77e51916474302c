"""The digits are images in folders, the same bytes each time."""

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from pipelines.corpora import digits


def test_every_scan_is_a_file_in_the_folder_of_its_digit():
    corpus, found = digits.build(), load_digits()
    assert len(corpus.files) == len(found.target) == 1797
    assert corpus.files == digits.build().files
    for number in (0, 1000, 1796):
        content = corpus.files[f"{found.target[number]}/{number:04d}.png"]
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        assert (np.abs(pixels / 255 * 16 - found.images[number]) < 0.04).all()
