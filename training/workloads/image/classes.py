"""The classes, learned from the training split; stored with the model as classes.json."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from training.workloads.category_codes import value_hashes
from trainyard.common.errors import DataError, TrainingError

FILE = "classes.json"


def labels(parts: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return label → number of images, from the statistics of units."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part["labels"])
    return total


@dataclass(frozen=True)
class Classes:
    """The labels, in the order of the model's logits."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    """Number of images of each class in the training split."""

    @classmethod
    def from_statistics(cls, parts: Iterable[Mapping[str, Any]]) -> Self:
        """Create the classes; whole-number labels are sorted by value, others alphabetically.

        Raises:
            TrainingError: there are fewer than two classes.
        """
        counts = labels(parts)
        if len(counts) < 2:
            raise TrainingError(
                f"the training split's images have {len(counts)} labels ({', '.join(counts)}): "
                "there "
                "is nothing to tell apart; look at workload.config.label"
            )
        digits = all(name.isascii() and name.isdigit() for name in counts)
        names = sorted(counts, key=lambda name: (int(name) if digits else 0, name))
        return cls(tuple(names), tuple(counts[name] for name in names))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the classes from a file. Raises: DataError: the file is damaged."""
        try:
            tree = json.loads(path.read_bytes())
            return cls(tuple(map(str, tree["names"])), tuple(map(int, tree["counts"])))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: is damaged ({error!r}); train the model again") from None

    def content(self) -> bytes:
        """Return the content of classes.json."""
        tree = {"names": self.names, "counts": self.counts}
        return json.dumps(tree, indent=1, ensure_ascii=False).encode()

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Hash of a label, as stored in samples → index of its logit."""
        codes = value_hashes(list(self.names)).tolist()
        return {code: number for number, code in enumerate(codes)}

    @property
    def shares(self) -> np.ndarray:
        """Share of each class in the training split's images, float64 (classes,)."""
        return np.array(self.counts) / sum(self.counts)

    def check(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Check a split's labels. Raises: DataError: the model cannot predict some of them."""
        if unknown := sorted(labels(parts).keys() - set(self.names)):
            raise DataError(
                f"the test split has labels that no training image has: {', '.join(unknown[:10])}; "
                "give more images of these, leave them out, or lower shard.test_share"
            )
