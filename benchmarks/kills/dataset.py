"""What a dataset holds, and how another one differs from it."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from steps.shard.shard_plan import SPLITS
from training.data.dataset import Dataset

BATCH = 4096  # samples read at a time


@dataclass(frozen=True)
class Contents:
    """Every split's fingerprint, and how often each sample stands in it."""

    fingerprints: dict[str, str]
    samples: dict[str, Counter[bytes]]

    @classmethod
    def of(cls, output: Path) -> Self:
        """Read every sample of every split."""
        fingerprints, samples = {}, {}
        for split in SPLITS:
            dataset = Dataset(output / split)
            dataset.check()
            fingerprints[split] = dataset.fingerprint
            samples[split] = Counter(
                row.tobytes() for batch in dataset.batches(BATCH) for row in batch["tokens"]
            )
        return cls(fingerprints, samples)

    def differences(self, other: Self) -> dict[str, int]:
        """What is wrong with ``other``, in samples; and in how many splits the fingerprint is."""
        found = {"wrong": 0, "missing": 0, "duplicated": 0, "fingerprints": 0}
        for split, expected in self.samples.items():
            surplus = other.samples[split] - expected
            found["wrong"] += sum(n for row, n in surplus.items() if row not in expected)
            found["duplicated"] += sum(n for row, n in surplus.items() if row in expected)
            found["missing"] += (expected - other.samples[split]).total()
            found["fingerprints"] += self.fingerprints[split] != other.fingerprints[split]
        return found
