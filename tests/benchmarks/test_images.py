"""The pictures are the same each time, and ours takes part."""

from benchmarks.images.contenders import BATCH, SIZE, Ours
from benchmarks.images.pictures import picture, write


def test_ours_gives_batches_of_augmented_images(tmp_path):
    write(tmp_path / "images", 40)
    assert (tmp_path / "images/class3/000013.jpg").read_bytes() == picture(13)
    Ours().make(tmp_path / "images", tmp_path / "ours")
    batches = Ours().batches(tmp_path / "ours", 2)
    first = next(batches)
    assert first.shape == (BATCH, SIZE, SIZE, 3)
    assert (first != next(batches)).any()
    batches.close()
