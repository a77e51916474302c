"""Decoding and augmentation: the seed's effect, and files that cannot be decoded."""

import io
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.training.workloads.image.pictures import CONFIG, picture
from training.workloads.image.config import ImageConfig
from training.workloads.image.pixels import (
    compute_middle_box,
    decode_crop,
    draw_box,
    explain_undecodable,
)

SETTINGS = ImageConfig(**CONFIG)


def encode_image(image: Image.Image, format_: str) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, quality=95)
    return file.getvalue()


@given(
    whole=st.tuples(st.integers(1, 900), st.integers(1, 900)),
    low=st.floats(0.01, 1),
    high=st.floats(0.01, 1),
    ratio=st.floats(1, 4),
    seed=st.integers(0, 2**64 - 1),
)
def test_a_part_lies_inside_the_image_and_has_the_ratio(whole, low, high, ratio, seed):
    low, high = sorted((low, high))
    config = SETTINGS.model_copy(update={"crop_area": (low, high), "crop_ratio": ratio})
    left, upper, right, lower = draw_box(whole, config, random.Random(seed))
    assert 0 <= left < right <= whole[0] + 1e-9 and 0 <= upper < lower <= whole[1] + 1e-9
    assert max((right - left) / (lower - upper), (lower - upper) / (right - left)) <= ratio * 1.0001
    area = (right - left) * (lower - upper) / (whole[0] * whole[1])
    fallen_back = (left, upper) == pytest.approx((whole[0] - right, whole[1] - lower))
    assert low * 0.9999 <= area <= high * 1.0001 or fallen_back


def test_the_middle_is_a_square_of_the_shorter_side():
    assert compute_middle_box((100, 40), SETTINGS) == (32.5, 2.5, 67.5, 37.5)


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "WEBP"])
def test_a_seed_decides_the_pixels_and_none_takes_the_middle(format_):
    content = picture(1, format_)
    five, again, six = (decode_crop(content, SETTINGS, seed) for seed in (5, 5, 6))
    assert five.shape == (16, 16, 3)
    assert (five == again).all() and (five != six).any()
    assert (decode_crop(content, SETTINGS, None) == decode_crop(content, SETTINGS, None)).all()


def test_half_of_the_images_are_mirrored():
    whole = SETTINGS.model_copy(update={"crop_area": (1, 1), "crop_ratio": 1.0})
    wide = encode_image(Image.fromarray(np.tile(np.arange(32, dtype=np.uint8) * 8, (32, 1))), "PNG")
    found = [decode_crop(wide, whole, seed) for seed in range(100)]
    mirrored = [one[0, 0, 0] > one[0, -1, 0] for one in found]
    assert 30 < sum(mirrored) < 70


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_image_becomes_colours_or_grey(mode, channels):
    content = encode_image(Image.new(mode, (20, 20)), "TIFF")
    config = SETTINGS.model_copy(update={"channels": channels})
    assert explain_undecodable(content) is None
    assert decode_crop(content, config, 1).shape == (16, 16, channels)


def test_a_large_jpeg_is_decoded_at_an_eighth_and_looks_alike():
    """The limit is the difference between scalings."""
    smooth = Image.effect_noise((32, 32), 60).resize((512, 512), Image.Resampling.BICUBIC)
    jpeg, png = (
        decode_crop(encode_image(smooth, format_), SETTINGS, None).astype(int)
        for format_ in ("JPEG", "PNG")
    )
    assert np.abs(jpeg - png).mean() < 6


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "WEBP", "GIF"])
def test_an_image_that_was_cut_off_is_refused_wherever(format_):
    content = picture(2, format_, width=200, height=200)
    assert explain_undecodable(content) is None
    for size in (0, 1, 10, len(content) // 2, len(content) - 200):
        assert explain_undecodable(content[:size]), (format_, size)


def test_what_is_no_image_or_of_too_many_pixels_is_refused(monkeypatch):
    assert (
        explain_undecodable(b"<html>not found</html>")
        == "is not an image: its first bytes are b'<html>no'"
    )
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)  # of 480; twice as many are an error anyway
    assert "cannot be decoded" in explain_undecodable(picture(1))
