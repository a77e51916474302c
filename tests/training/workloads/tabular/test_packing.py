"""Rows to samples, and the statistics: against pandas, whatever the batches are."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.util import hash_array

from tests.training.workloads.tabular.tables import SETTINGS, batch, pack, table
from training.data.shard_writer import check_samples
from training.workloads import load_packing
from training.workloads.column_packing import MISSING, ColumnHasher, hash_values
from training.workloads.tabular.column_statistics import Moments, Statistics
from trainyard.common.errors import DataError, TrainingError

pytestmark = pytest.mark.long


def test_a_sample_is_a_row():
    frame = table(50)
    samples, _ = pack(SETTINGS, [frame[:20], frame[20:]])
    assert check_samples(samples, load_packing("tabular", SETTINGS).fields) == 50
    hashes = hash_array(frame["colour"].to_numpy(object)).view(np.int64)
    assert samples["categories"][:, 0].tolist() == hashes.tolist()
    missing = frame["size"].isna()
    assert ((samples["categories"][:, 1] == MISSING) == missing).all() and missing.any()
    expected = frame[["weight", "age"]].to_numpy(np.float32)
    np.testing.assert_array_equal(samples["numbers"], expected)
    assert samples["label"].tolist() == [int(delay == 30) for delay in frame["delay"]]


def test_a_row_knows_its_group_which_is_no_feature():
    frame = table(20).assign(day=["mon", "tue"] * 10)
    samples, statistics = pack(SETTINGS | {"group": "day"}, [frame])
    assert len(np.unique(samples["group"])) == 2
    assert (samples["group"][::2] == samples["group"][0]).all()
    assert samples["categories"].shape == (20, 2)
    assert set(statistics["categories"]) == {"colour", "size"}
    as_category, _ = pack(SETTINGS | {"group": "colour"}, [frame])
    assert (as_category["group"] == as_category["categories"][:, 0]).all()


@pytest.mark.parametrize("values", [
    ["2013-02-01", "2012-12-31", "2013-01-31"],
    ["2013-02-01T10:00", "2013-02-01T09:59:59", "2013-02-01T09:59:59.5"],
    ["10", "-9", "9"],
])  # fmt: skip
def test_ordered_groups_are_numbered_in_their_order(values: list[str]):
    frame = table(30).assign(day=values * 10)
    ordered = SETTINGS | {"group": "day", "group_ordered": True}
    samples, _ = pack(ordered, [frame[:11], frame[11:]])
    assert np.unique(samples["group"], return_inverse=True)[1].tolist() == [2, 0, 1] * 10
    assert load_packing("tabular", ordered).info["groups_ordered"] is True
    assert "groups_ordered" not in load_packing("tabular", SETTINGS | {"group": "day"}).info


def test_groups_without_an_order_are_refused_where_one_is_declared():
    frame = table(20).assign(day=["mon", "2013-01-01"] * 10)
    with pytest.raises(DataError, match=r"'mon'.*whole numbers.*group_ordered"):
        pack(SETTINGS | {"group": "day", "group_ordered": True}, [frame])
    with pytest.raises(TrainingError, match="name the column of the groups"):
        load_packing("tabular", SETTINGS | {"group_ordered": True})


@given(st.lists(st.integers(0, 60), max_size=5), st.integers(0, 3))
def test_the_statistics_are_those_of_the_rows_however_they_are_cut(cuts, seed):
    frame = table(60, seed)
    edges = [0, *sorted(cuts), 60]
    frames = [frame[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]
    samples, statistics = pack(SETTINGS, frames)
    assert json.loads(json.dumps(statistics, allow_nan=False)) == statistics
    for name in ("weight", "age"):
        stored = frame[name].astype(np.float32).astype(float)
        found = statistics["numbers"][name]
        assert found["count"] == stored.count()
        assert found["mean"] == pytest.approx(stored.mean())
        assert found["m2"] == pytest.approx(stored.var(ddof=0) * stored.count())
    for index, name in enumerate(("colour", "size")):
        found = statistics["categories"][name]
        values = [value if isinstance(value, str) else None for value in frame[name]]
        assert dict(zip(found["value"], found["count"], strict=True)) == Counter(values)
        code = dict(zip(found["value"], found["hash"], strict=True))
        assert [code[value] for value in values] == samples["categories"][:, index].tolist()


def test_the_variance_survives_a_mean_that_is_far_from_zero():
    """Uses values for which the textbook formula, E[x²] − E[x]², loses all digits."""
    values = 1e9 + np.random.default_rng(0).normal(0, 1, 1000)
    total = Moments.create_empty(1)
    for part in np.array_split(values, 7):
        total = total.merge(Moments.from_values(part[:, None]))
    assert total.m2[0] / 999 == pytest.approx(values.var(ddof=1), rel=1e-6)


def test_parts_add_up_to_the_whole():
    frame = table(90)
    _, whole = pack(SETTINGS, [frame])
    total = Statistics.create_empty(SETTINGS["categories"], SETTINGS["numbers"])
    for part in (frame[:10], frame[10:10], frame[10:]):
        total.add_json(pack(SETTINGS, [part])[1])
    found = total.as_json()
    for name, expected in whole["categories"].items():
        values = found["categories"][name].values()
        assert {*zip(*values, strict=True)} == {*zip(*expected.values(), strict=True)}
    for name, numbers in whole["numbers"].items():
        assert found["numbers"][name] == pytest.approx(numbers)


def test_a_split_without_records_has_statistics_too():
    samples, statistics = pack(SETTINGS, [])
    assert [len(array) for array in samples.values()] == [0, 0, 0]
    assert statistics["numbers"]["age"] == {"count": 0, "mean": 0, "m2": 0}
    assert statistics["categories"]["size"] == {"value": [], "hash": [], "count": []}
    _, missing = pack(SETTINGS, [table(5).assign(age=np.nan)])
    assert missing["numbers"]["age"] == statistics["numbers"]["age"]


def test_a_number_beyond_float32_is_named():
    packing = load_packing("tabular", SETTINGS)
    with pytest.raises(DataError, match="column weight: 1e\\+39 is too large"):
        packing.packer().add(batch(table(3).assign(weight=[1, 1e39, 2]), packing))


@pytest.mark.parametrize(("change", "expected"), [
    ({"categories": [], "numbers": []}, "both empty"),
    ({"numbers": ["weight", "delay"]}, "'delay' is named twice"),
    ({"numbers": ["weight", "colour"]}, "'colour' is named twice"),
    ({"group": "weight"}, "group 'weight' is a number"),
    ({"group": "delay"}, "group 'delay' is a number"),
    ({"dropout": 1.0}, "dropout: is 1.0"),
    ({"hidden": [0]}, "hidden.0: is 0"),
])  # fmt: skip
def test_impossible_settings_are_refused(change, expected):
    with pytest.raises(TrainingError, match=expected):
        load_packing("tabular", SETTINGS | change)


@given(st.lists(st.lists(st.none() | st.sampled_from("abc"), max_size=4), max_size=5))
def test_values_are_hashed_the_same_whatever_dictionary_they_stand_in(parts):
    codes = ColumnHasher()
    for part in parts:
        column = pa.array(["unused", *part]).dictionary_encode()[1:]
        found = codes.encode_column("name", column)
        expected = [MISSING if v is None else int(hash_values([v])[0]) for v in part]
        assert found.hashes.tolist() == expected
        assert found.values.take(pa.array(found.index)).to_pylist() == part
        assert codes.encode_column("name", pa.array(part, pa.string())).hashes.tolist() == expected
