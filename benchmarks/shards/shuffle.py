"""How far neighbours in the shuffled order lie apart: ours against a true permutation."""

import math

import numpy as np

from benchmarks.shards.bench import Bench
from benchmarks.shards.figures import Section
from training.data.order import uniform, windowed

BINS = 200
SHARDS = 100
WINDOW_SHARDS = 10
SEEDS = 20


def measure(bench: Bench) -> Section:
    size = bench.sizes.order
    sizes = np.full(SHARDS, size // SHARDS)
    window = WINDOW_SHARDS * size // SHARDS
    orders = {
        "uniform": lambda seed: uniform("benchmark", seed, size).at(range(size)),
        "windowed": lambda seed: windowed("benchmark", seed, sizes, window).at(range(size)),
        "true permutation": lambda seed: np.random.default_rng(seed).permutation(size),
    }
    section = Section("shuffle", "Shuffle: distances between neighbours")
    section.columns = ("", "mean distance ÷ expected", "χ² as z-score", "within 1 % of the data")
    for name, order in orders.items():
        density, distances = _density(order, size)
        z = _z_score(density, size)
        near = float(np.mean(distances <= size / 100))
        mean = float(distances.mean() / ((size + 1) / 3))
        section.rows.append((name, f"{mean:.4f}", f"{z:+.1f}", f"{near:.2%}"))
        ratio = (density / _expected(size)).tolist()
        section.data[name] = {
            "ratio": ratio,
            "edges": (_edges(size) / size).tolist(),
            "z": z,
            "mean": mean,
            "near": near,
        }
    section.notes.append(
        f"{SEEDS} orders of {size:,} samples; the windowed one reads {SHARDS} shards in windows of "
        f"{WINDOW_SHARDS}. Of a true permutation the distance d comes with probability "
        "2 (n − d) ∕ (n (n − 1)), the z-score is within ±3, and 1.99 % of the neighbours are "
        "within 1 % of the data."
    )
    return section


def _edges(size: int) -> np.ndarray:
    """Of bins that are about equally likely in a true permutation."""
    likely = size * (1 - np.sqrt(1 - np.linspace(0, 1, BINS + 1)))
    return np.maximum(likely.astype(np.int64), 1)


def _density(order, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours by distance, in bins, and every distance; of all seeds together."""
    distances = np.concatenate([np.abs(np.diff(order(seed))) for seed in range(SEEDS)])
    return np.histogram(distances, _edges(size))[0], distances


def _expected(size: int) -> np.ndarray:
    """Neighbours by distance in true permutations."""
    # Neighbours nearer than d: the sum of 2 (n - k) / (n (n - 1)) over k < d.
    d = _edges(size).astype(float)
    below = (d - 1) * (2 * size - d) / (size * (size - 1))
    below[-1] = 1  # the last bin of a histogram holds its right edge too
    return np.diff(below) * SEEDS * (size - 1)


def _z_score(density: np.ndarray, size: int) -> float:
    """Pearson's χ² against the theory, as standard deviations from its mean."""
    expected = _expected(size)
    chi_square = float(((density - expected) ** 2 / expected).sum())
    freedom = len(expected) - 1
    return (chi_square - freedom) / math.sqrt(2 * freedom)
