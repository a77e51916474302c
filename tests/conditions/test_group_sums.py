"""Scores added up: however they are cut, and however many groups there are."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conditions.group_sums import (
    BINS,
    BLOCKS,
    MAX_SLICES,
    NO_VALUE,
    SLICE_BLOCKS,
    Batch,
    GroupSums,
    Wanted,
    hashed,
    in_order,
)
from conditions.paired import improvement
from trainyard.common.errors import GateError

WANTED = Wanted(metrics={"m": "lower"}, champion="arn")


def batch(seed: int = 0, rows: int = 300, groups: int = 25, **changes) -> Batch:
    source = np.random.default_rng(seed)
    scores = [source.integers(0, 9, rows).astype(float) for _ in range(2)]
    values = {
        "groups": source.integers(0, groups, rows),
        "metrics": {"m": (*scores, source.integers(1, 5, rows).astype(float))},
        "slices": {"kind": pa.array(source.choice(["a", "b", None], rows)).dictionary_encode()},
    }
    return Batch(**values | changes)


def cut(whole: Batch, first: int, last: int) -> Batch:
    rows = slice(first, last)
    return Batch(
        groups=whole.groups[rows],
        metrics={m: tuple(column[rows] for column in columns)
                 for m, columns in whole.metrics.items()},
        slices={n: column[rows] for n, column in whole.slices.items()},
    )  # fmt: skip


@settings(max_examples=25)
@given(st.lists(st.integers(0, 300), max_size=4))
def test_the_sums_are_the_same_however_the_rows_are_cut(cuts):
    whole = batch()
    one, many = GroupSums(WANTED), GroupSums(WANTED)
    one.add(whole)
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), 300], strict=True):
        many.add(cut(whole, first, last))
    assert (one.examples, one.groups, one.totals) == (many.examples, many.groups, many.totals)
    assert [list(x) for x in one.of_groups("m")] == [list(x) for x in many.of_groups("m")]
    for name in ("a", "b", NO_VALUE):
        pair = [sums.of_slice("m", "kind", name) for sums in (one, many)]
        assert [list(x) for x in pair[0]] == [list(x) for x in pair[1]]
        counts = [sums.slice_examples[sums.slices["kind", name]] for sums in (one, many)]
        assert counts[0] == counts[1] > 0


def test_slices_add_up_to_the_whole_and_the_sign_follows_the_direction():
    sums, higher = GroupSums(WANTED), GroupSums(Wanted(metrics={"m": "higher"}, champion="arn"))
    whole = batch()
    sums.add(whole)
    higher.add(whole)
    challenger, champion, weight = whole.metrics["m"]
    of_slices = [sum(sums.of_slice("m", *key)[part].sum() for key in sums.slices)
                 for part in (0, 1)]  # fmt: skip
    assert of_slices == [(champion - challenger).sum(), weight.sum()]
    assert higher.of_groups("m")[0].sum() == -of_slices[0]


def test_few_groups_keep_to_themselves_and_many_become_blocks_that_tell_the_same():
    assert len(set(hashed(np.arange(-500, 500)))) > 990
    sums = GroupSums(WANTED)
    source = np.random.default_rng(0)
    rows = 200_000
    noise = source.normal(0, 1, rows)
    sums.add(batch(rows=rows, groups=50_000, slices={}, metrics={
        "m": (noise, np.zeros(rows), np.ones(rows))}))  # fmt: skip
    difference, weight = sums.of_groups("m")
    assert sums.groups > BLOCKS and len(weight) == BLOCKS
    assert difference.sum() == pytest.approx(-noise.sum())
    blocks = improvement(difference, weight, 0.95, resamples=0)
    bins = improvement(sums.metrics["m"].difference, sums.metrics["m"].weight, 0.95, resamples=0)
    assert len(sums.metrics["m"].weight) == BINS
    assert blocks.standard_error == pytest.approx(bins.standard_error, rel=0.05)


def test_an_id_is_no_slice():
    values = pa.array([str(number) for number in range(MAX_SLICES + 1)]).dictionary_encode()
    rows = len(values)
    with pytest.raises(GateError, match="slice.id is an id, not a slice"):
        GroupSums(WANTED).add(batch(rows=rows, slices={"id": values}))


@pytest.mark.parametrize("groups", [40, BLOCKS, 3000, BINS + 5000])
def test_ordered_groups_stay_in_their_order_and_only_neighbours_are_joined(groups: int):
    """Each group's difference is its place, so that what is not between its neighbours shows."""
    names = np.random.default_rng(0).permutation(7 * np.arange(groups) - 1000)
    place = (names + 1000) / 7
    starts = in_order(np.array_split(names, 9))
    assert len(starts) <= BINS and starts[0] == -1000
    sums = GroupSums(WANTED, starts=starts)
    kind = pa.array(["a"] * groups).dictionary_encode()
    metrics = {"m": (-place, np.zeros(groups), np.ones(groups))}
    whole = Batch(groups=names, metrics=metrics, slices={"kind": kind})
    for rows in np.array_split(np.arange(groups), 4):
        sums.add(cut(whole, rows[0], rows[-1] + 1))
    for (difference, weight), most in (
        (sums.of_groups("m"), BLOCKS),
        (sums.of_slice("m", "kind", "a"), SLICE_BLOCKS),
    ):
        used = weight > 0
        assert min(groups, most) // 2 <= used.sum() <= most and weight.sum() == groups
        means = difference[used] / weight[used]
        assert (np.diff(means) > 0).all() and weight.max() <= 4 * groups / most + 2
