"""Make data and weights in the form of those that the projects would download."""

import re
from collections import Counter
from pathlib import Path

import numpy as np


def list_words(kept: int = 500) -> list[str]:
    """Return the words of Python's documentation; all but the ``kept`` commonest are ``<unk>``."""
    from pydoc_data.topics import topics

    found = re.findall(r"\w+|[.,]", "\n".join(topics.values()).lower())
    known = {word for word, _ in Counter(found).most_common(kept)}
    return [word if word in known else "<unk>" for word in found]


def write_pytorch_data(folder: Path) -> None:
    """Write three files in the form of WikiText-2."""
    text = list_words()
    lines = [" ".join(text[start : start + 20]) for start in range(0, 60_000, 20)]
    parts = {"train": lines[:-600], "valid": lines[-600:-300], "test": lines[-300:]}
    for name, part in parts.items():
        (folder / f"{name}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")


def write_lightning_data(folder: Path) -> None:
    """Write a file like WikiText-2's training file: more than 4,000 blocks of 35 words."""
    text = (list_words() * 3)[:160_000]
    lines = [" ".join(text[start : start + 50]) for start in range(0, len(text), 50)]
    (folder / "wikitext-2.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_xgboost_data(folder: Path) -> None:
    """Write abalones in libsvm's form: eight measures, and an age that depends on them."""
    random = np.random.default_rng(0)
    for split, count in (("train", 2000), ("validation", 500), ("test", 500)):
        rows = random.random((count, 8))
        ages = 10 * rows[:, 1] + 5 * rows[:, 2] * rows[:, 3] + random.normal(0, 0.5, count)
        (folder / split).mkdir()
        lines = (
            f"{age:.3f} " + " ".join(f"{i}:{value:.4f}" for i, value in enumerate(row, 1))
            for age, row in zip(ages, rows, strict=True)
        )
        (folder / split / "abalone.libsvm").write_text("\n".join(lines) + "\n")


def write_tensorflow_data(folder: Path) -> None:
    """Write scikit-learn's digits of 8 × 8 pixels on 28 × 28, as MNIST's four arrays."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.zeros((len(digits.images), 28, 28), np.float32)
    images[:, 2:26, 2:26] = np.kron(digits.images / 16, np.ones((3, 3)))
    for split, part in (("train", slice(0, 1500)), ("eval", slice(1500, None))):
        np.save(folder / f"{split}_data.npy", images[part])
        np.save(folder / f"{split}_labels.npy", digits.target[part])


def write_hugging_face_data(folder: Path) -> None:
    """Write tokenised reviews, and a small BERT with a tokenizer; run in the project's Python."""
    from datasets import Dataset
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    text, random = list_words(), np.random.default_rng(0)
    (folder / "base").mkdir()
    vocabulary = folder / "base/vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary.write_text("\n".join([*special, *sorted({*text}), "good", "bad"]) + "\n")
    tokenizer = BertTokenizerFast(vocab_file=str(vocabulary))
    tokenizer.save_pretrained(folder / "base")
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    config = BertConfig(vocab_size=len(tokenizer), num_attention_heads=2, **small)
    BertForSequenceClassification(config).save_pretrained(folder / "base")
    for split, count in (("train", 320), ("test", 96)):
        labels = random.integers(0, 2, count).tolist()
        starts = random.integers(0, len(text) - 12, count).tolist()
        reviews = [
            " ".join([*text[start : start + 12], ("bad", "good")[label]])
            for start, label in zip(starts, labels, strict=True)
        ]
        encoded = tokenizer(reviews, padding="max_length", truncation=True, max_length=24)
        Dataset.from_dict({**encoded, "label": labels}).save_to_disk(str(folder / split))


MAKERS = {
    "pytorch": write_pytorch_data,
    "lightning": write_lightning_data,
    "xgboost": write_xgboost_data,
    "tensorflow": write_tensorflow_data,
    "hugging_face": write_hugging_face_data,
}

if __name__ == "__main__":
    import sys

    MAKERS[sys.argv[1]](Path(sys.argv[2]))
