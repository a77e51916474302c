"""Shares of requests: who gets the next one, so that few requests hold their shares, too."""

from collections.abc import Mapping


class Turns:
    """Smooth weighted round robin: after any n requests nobody is one request from its share.

    AWS draws at random with the same weights.
    """

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def next(self, weights: Mapping[str, float]) -> str:
        """A name, in proportion to its weight; one with weight 0 never.

        Raises:
            ValueError: no weight is above 0.
        """
        wanted = {name: weight for name, weight in weights.items() if weight > 0}
        if not wanted:
            raise ValueError("no weight is above 0")
        total = sum(wanted.values())
        self._credit = {
            name: self._credit.get(name, 0.0) + weight / total for name, weight in wanted.items()
        }
        chosen = max(self._credit, key=lambda name: self._credit[name])
        self._credit[chosen] -= 1.0
        return chosen
