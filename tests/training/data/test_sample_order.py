"""The order of samples: each once per epoch, whatever the ranks, batches and interruptions."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from training.data.sample_order import (
    FEW,
    Order,
    create_permutation,
    create_uniform_order,
    create_windowed_order,
    rank_positions,
)

pytestmark = pytest.mark.long

shard_sizes = st.lists(st.integers(1, 60), min_size=1, max_size=30)


@st.composite
def orders(draw) -> tuple[Order, int]:
    """Draw an order of either kind, and the number of samples in its epoch."""
    sizes = np.array(draw(shard_sizes))
    samples, seed = int(sizes.sum()), draw(st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        return create_uniform_order("f", seed, samples), samples
    return create_windowed_order("f", seed, sizes, draw(st.integers(1, 2 * samples))), samples


@given(orders(), st.data())
def test_every_epoch_holds_every_sample_once_and_any_position_can_be_asked(made, data):
    order, samples = made
    epochs = order.indices_at(range(3 * samples)).reshape(3, samples)
    assert (np.sort(epochs, axis=1) == np.arange(samples)).all()
    asked = data.draw(st.lists(st.integers(0, 3 * samples - 1)).map(sorted))
    assert order.indices_at(np.array(asked)).tolist() == epochs.ravel()[asked].tolist()
    if samples > 30:
        assert len({epoch.tobytes() for epoch in epochs}) == 3


@given(st.integers(1, FEW), st.integers(0, 10**12), st.lists(st.integers(0, 500)).map(sorted))
def test_epochs_that_are_computed_together_are_those_that_each_is_by_itself(samples, first, steps):
    positions = first + np.array(steps, np.int64)
    alone = [
        create_permutation(f"f 3 {position // samples}", samples)(np.array([position % samples]))[0]
        for position in positions.tolist()
    ]
    assert create_uniform_order("f", 3, samples).indices_at(positions).tolist() == alone


def test_fingerprint_seed_epoch_and_kind_all_change_the_order():
    sizes = np.full(10, 100)
    made = [
        kind
        for f in "ab"
        for s in (0, 1)
        for kind in (create_uniform_order(f, s, 1000), create_windowed_order(f, s, sizes, 1000))
    ]
    orders = [order.indices_at(range(epoch, epoch + 1000)) for order in made for epoch in (0, 1000)]
    assert len({order.tobytes() for order in orders}) == 16


def read(order: Order, position: int, batches: int, batch: int, world: int, chunk: int):
    """Return what all ranks read in these global batches: (batches, world, share)."""
    share, stream = batch // world, []
    for rank in range(world):
        part = {"global_batch": batch, "rank": rank, "world": world}
        chunks = [
            order.indices_at(rank_positions(position, k, min(chunk, batches * share - k), **part))
            for k in range(0, batches * share, chunk)
        ]
        stream.append(np.concatenate(chunks).reshape(batches, share))
    return np.stack(stream, axis=1)


runs = st.lists(
    st.tuples(st.integers(1, 64), st.integers(1, 12), st.integers(0, 6), st.integers(1, 40)),
    min_size=2,
    max_size=6,
)


@given(orders(), runs)
def test_other_ranks_and_batches_go_on_exactly_where_the_last_stopped(made, runs):
    """Runs of (world, samples per rank, batches, samples per read), each from the position on."""
    order, samples = made
    position, seen = 0, []
    for world, share, batches, chunk in runs:
        assume(position < 50 * samples)
        if batches:
            seen.append(read(order, position, batches, world * share, world, chunk).ravel())
        position += batches * world * share
    together = np.concatenate([*seen, np.empty(0, np.int64)])
    assert together.tolist() == order.indices_at(range(position)).tolist()


@given(shard_sizes, st.integers(1, 500), st.integers(0, 3), st.data())
def test_a_windowed_order_needs_two_windows_of_shards_at_once(sizes, window, epoch, data):
    sizes = np.array(sizes)
    samples, begins = int(sizes.sum()), np.cumsum(sizes) - sizes
    order = create_windowed_order("f", 0, sizes, window)
    position = epoch * samples + data.draw(st.integers(0, samples - 1))
    needed = order.find_next_shards(position)
    following = order.indices_at(range(position, position + min(window, samples) // 2 + 1))
    shards = np.searchsorted(begins, following, side="right") - 1
    if window > 2 * sizes.max():
        assert set(shards) <= set(needed.tolist())
    assert shards[0] in needed
    end = (epoch + 1) * samples
    following = order.indices_at(range(end, end + 1))
    [first_of_next] = np.searchsorted(begins, following, side="right") - 1
    assert first_of_next in order.find_next_shards(end - 1)
    # a window ends with the shard nearest to where it should
    assert sizes[needed].sum() <= 2 * (2 * window + sizes.max())


def test_windows_are_shuffled_inside_and_shards_between_them():
    sizes = np.full(1000, 50)
    order = create_windowed_order("f", 0, sizes, 500)
    shards, other = order.indices_at(range(100_000)).reshape(2, 100, 500) // 50
    assert {len(set(window)) for window in shards.tolist()} == {10}
    assert all(len(set(window[:50])) > 7 for window in shards.tolist())
    patterns = {tuple(map(window.index, window)) for window in shards.tolist()}
    assert len(patterns) == 100
    assert abs(np.corrcoef(np.arange(100), shards[:, 0])[0, 1]) < 0.4
    assert not {frozenset(w) for w in shards.tolist()} & {frozenset(w) for w in other.tolist()}
