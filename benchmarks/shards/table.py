"""A table of random rows with the columns of recipes/flights.yaml."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

KINDS = ("csv", "parquet")
"""Of the input."""

FORMATS = ("Arrow IPC", "Parquet")
"""That pyarrow writes when it is alone."""

KEY, LABEL = "date", "arr_delay"
CATEGORIES = (
    "month", "day_of_week", "hour", "carrier", "origin", "dest", "plane_manufacturer",
    "plane_model", "plane_engine",
)  # fmt: skip
NUMBERS = (
    "departure_minute", "arrival_minute", "scheduled_minutes", "departures_in_hour", "distance",
    "plane_seats", "plane_age", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust",
    "precip", "pressure", "visib",
)  # fmt: skip
MEASURED = NUMBERS.index("temp")
"""From here on numbers have two decimals; those before are whole."""


def write(folder: Path, kind: str, rows: int, files: int) -> None:
    """The rows in files of even size."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(files):
        part = _rows(random, rows // files)
        path = folder / f"{number:03d}.{kind}"
        if kind == "csv":
            pa.csv.write_csv(part, path)
        else:
            pa.parquet.write_table(part, path)


def _rows(random: np.random.Generator, count: int) -> pa.Table:
    days = np.datetime64("2013-01-01") + random.integers(0, 365, count)
    columns = {KEY: pa.array(days.astype(str))}
    for number, name in enumerate(CATEGORIES):
        values = 10 + 4 * number**2
        names = np.array([f"{name[:3].upper()}{value}" for value in range(values)])
        columns[name] = pa.array(names[random.integers(0, values, count)])
    for number, name in enumerate(NUMBERS):
        if number < MEASURED:
            columns[name] = pa.array(random.integers(0, 3000, count))
        else:
            columns[name] = pa.array(random.normal(50, 20, count).round(2))
    columns[LABEL] = pa.array(random.normal(7, 40, count).round(0))
    return pa.table(columns)
