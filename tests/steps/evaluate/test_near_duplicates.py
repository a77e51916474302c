"""Near-duplicates between train and test: the sketches of documents, and which are found."""

import random
from pathlib import Path

import numpy as np
import pytest

from steps.evaluate import near_duplicates as near
from steps.evaluate.near_duplicates import near_duplicates
from tests.training.test_language_model import dataset
from training.data.dataset import Dataset
from training.workloads import load
from training.workloads.language_model.minhash import PLACES, WIDTH

WORKLOAD = load("language_model", {"context_length": 64})


def text(seed: int, words: int = 80) -> str:
    source = random.Random(seed)
    return " ".join(str(source.randint(0, 10**6)) for _ in range(words))


def edited(seed: int, changes: int) -> str:
    """``text`` with some words replaced: 80 words are some 530 shingles, a word 14."""
    words = text(seed).split()
    for place in random.Random(seed).sample(range(len(words)), changes):
        words[place] = "other"
    return " ".join(words)


def sketched(folder: Path, texts: list[str]) -> np.ndarray:
    found = list(WORKLOAD.sketches(dataset(folder, WORKLOAD, texts)))
    return np.concatenate(found)


def shingles(document: str) -> set[bytes]:
    raw = document.encode()
    return {raw[at : at + WIDTH] for at in range(len(raw) - WIDTH + 1)}


def test_equal_places_are_the_share_of_common_shingles(tmp_path: Path):
    texts = [text(0), edited(0, 1), edited(0, 4), edited(0, 20), text(1)]
    sketches = sketched(tmp_path, texts)
    assert sketches.shape == (5, PLACES) and sketches.dtype == np.uint32
    for one, sketch in zip(texts, sketches, strict=True):
        mine, other = shingles(one), shingles(texts[0])
        truth = len(mine & other) / len(mine | other)
        assert (sketch == sketches[0]).mean() == pytest.approx(truth, abs=4 * 0.5 / 8)


def test_short_and_empty_documents_have_no_sketch_and_neighbours_do_not_touch(tmp_path: Path):
    alone = sketched(tmp_path / "alone", [text(0), text(1)])
    among = sketched(tmp_path / "among", ["a" * (WIDTH - 1), text(0), "", "b", text(1), "c"])
    assert (alone == among).all()
    assert len(sketched(tmp_path / "least", ["x" * WIDTH, text(2)])) == 2


@pytest.mark.parametrize("most", [100_000, 25])
def test_copies_with_small_edits_are_found_and_others_are_not(tmp_path, monkeypatch, most):
    monkeypatch.setattr(near, "MOST", most)
    monkeypatch.setattr(near, "PIECE", 7)
    test = [edited(n, 1) for n in range(20)] + [edited(n, 40) for n in range(20, 40)]
    train = [text(n) for n in range(60)]
    splits: list[Dataset] = [
        dataset(tmp_path / name, WORKLOAD, texts)
        for name, texts in (("train", train), ("test", test + test[:1]))
    ]
    found = near_duplicates(*(WORKLOAD.sketches(split) for split in splits))
    looked = min(most, 41)
    assert found == {"examples": 20 + (looked == 41), "checked_examples": looked}


def test_of_nothing_nothing_is_found():
    assert near_duplicates([], []) == {"examples": 0, "checked_examples": 0}
