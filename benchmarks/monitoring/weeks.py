"""Draw a baseline and a week of ten features, by NumPy alone: a peer's Python draws them, too."""

import numpy as np

DRIFTED = ("amount", "carrier")
"""Features that drift, where there is drift: by half a standard deviation; one value from 18 to
40 %."""
CATEGORIES = {"carrier": 8, "country": 60, "device": 3, "product": 400}
"""Category → its number of values, of frequencies as 1 / rank."""
Columns = dict[str, np.ndarray]


def draw(seed: int, sizes: tuple[int, int], drift: bool) -> tuple[Columns, Columns]:
    """Return baseline and week: feature → object array of so many floats or texts; None: missing.

    Args:
        sizes: numbers of requests.
    """
    random = np.random.default_rng((seed, drift))
    return _requests(random, sizes[0], False), _requests(random, sizes[1], drift)


def _requests(random: np.random.Generator, size: int, drift: bool) -> Columns:
    shared = random.normal(size=size)  # three features depend on each other
    found: Columns = {
        "amount": random.normal(size=size) + 0.5 * drift,
        "price": np.exp(random.normal(size=size)),
        "age": random.integers(18, 90, size).astype(float),
        "clicks": random.poisson(1.0, size).astype(float),
        "speed": shared + 0.3 * random.normal(size=size),
        "power": shared + 0.3 * random.normal(size=size),
    }
    for name, number in CATEGORIES.items():
        shares = 1 / np.arange(1, number + 1)
        if drift and name in DRIFTED:
            shares[1] *= 3
        found[name] = random.choice([f"v{i}" for i in range(number)], size, p=shares / shares.sum())
    columns = {name: values.astype(object) for name, values in found.items()}
    for name in ("power", "device"):
        columns[name][random.random(size) < 0.1] = None
    return columns
