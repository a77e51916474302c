"""The order of a mixture: its shares at every length, each input's own order, ranks and changes."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from training.data.dataset import Dataset
from training.data.manifest import Field
from training.data.mixture import (
    Input,
    MixtureOrder,
    build_input_schedule,
    collect_inputs,
    select_inputs,
)
from training.data.sample_order import create_uniform_order, create_windowed_order
from training.data.shard_writer import write_dataset
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

shares = st.lists(st.integers(0, 60), min_size=1, max_size=7).filter(any)
FIELDS = {"id": Field(dtype="uint32", shape=(1,))}


def create_mixture(
    sizes: list[list[int]], phases, seed: int = 0, window: int | None = None
) -> MixtureOrder:
    """Create an order of inputs with these samples per shard; their shards are interleaved."""
    rows = [(number, size) for number, each in enumerate(sizes) for size in each]
    rows.sort(key=lambda row: row[1])  # so those of an input do not lie side by side
    begins = np.cumsum([0, *(size for _, size in rows)])
    made, orders = [], []
    for number in range(len(sizes)):
        here = np.array([place for place, row in enumerate(rows) if row[0] == number])
        each = np.array([rows[place][1] for place in here])
        made.append(Input(f"{number}", f"f{number}", here, each, begins[here]))
        if window is None:
            orders.append(create_uniform_order(f"f{number}", seed, int(each.sum())))
        else:
            orders.append(create_windowed_order(f"f{number}", seed, each, window))
    return MixtureOrder(made, orders, phases)


@st.composite
def mixtures(draw) -> tuple[MixtureOrder, list]:
    """Draw a mixture of inputs of unequal sizes, of either kind, and its phases."""
    count = draw(st.integers(1, 5))
    sizes = [draw(st.lists(st.integers(1, 40), min_size=1, max_size=6)) for _ in range(count)]
    weights = st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any)
    starts = [0, *sorted(draw(st.sets(st.integers(1, 300), max_size=3)))]
    phases = [(start, draw(weights)) for start in starts]
    window = draw(st.none() | st.integers(1, 50))
    return create_mixture(sizes, phases, draw(st.integers(0, 9)), window), phases


def by_the_book(order: MixtureOrder, phases, stop: int) -> tuple[list[int], list[int]]:
    """Return (input, sample) at every position, found by counting from the first one on."""
    counts, sources, samples = [0] * len(order.inputs), [], []
    for (start, weights), (end, _) in zip(phases, [*phases[1:], (stop, [])], strict=True):
        round_, _ = build_input_schedule(weights)
        for position in range(start, min(end, stop)):
            source = int(round_[(position - start) % len(round_)])
            count = counts[source]
            [own] = order._orders[source].indices_at(range(count, count + 1)).tolist()
            samples.append(int(order.inputs[source].list_first_indices(10**6)[own]))
            counts[source] += 1
            sources.append(source)
    return sources, samples


@example([40_000, 25_000, 500, 35, 1])
@given(shares)
def test_after_any_number_of_samples_each_share_is_exact_to_less_than_one(given_shares):
    found, before = build_input_schedule(given_shares)
    total, rounds = sum(given_shares), 3
    whole = np.tile(found, rounds)
    taken = np.arange(1, len(whole) + 1)
    for number, share in enumerate(given_shares):
        counts = np.cumsum(whole == number)
        assert (np.abs(counts * total - taken * share) < total).all()
        assert counts[-1] == rounds * share
        assert (before[found == number] == np.arange(share)).all()


@given(mixtures(), st.data())
def test_any_position_is_found_as_counting_from_the_first_one_finds_it(made, data):
    order, phases = made
    sources, samples = by_the_book(order, phases, 400)
    assert order.indices_at(range(400)).tolist() == samples
    assert order.find_input_numbers(range(400)).tolist() == sources
    asked = data.draw(st.lists(st.integers(0, 399)).map(sorted))
    assert order.indices_at(np.array(asked, np.int64)).tolist() == np.array(samples)[asked].tolist()
    position = data.draw(st.integers(0, 400))
    counted = np.bincount(sources[:position], minlength=len(order.inputs))
    assert order.count_samples(position).tolist() == counted.tolist()


@given(mixtures(), st.integers(0, 300))
def test_the_shards_that_are_asked_for_hold_the_next_sample_of_every_input(made, position):
    order, _ = made
    needed = order.find_next_shards(position)
    if needed is None:
        return
    assert len(set(needed.tolist())) == len(needed)
    for one, count, own in zip(
        order.inputs, order.count_samples(position), order._orders, strict=True
    ):
        [sample] = own.indices_at(range(int(count), int(count) + 1)).tolist()
        slot = int(np.searchsorted(np.cumsum(one.sizes), sample, side="right"))
        assert one.shards[slot] in needed


def write(folder, **made) -> Dataset:
    """Write a dataset with one unit per name: ids from ``start`` to before ``stop``."""
    for name, (start, stop) in made.items():
        ids = np.arange(start, stop, dtype=np.uint32).reshape(-1, 1)
        write_dataset(
            folder, {"id": ids}, FIELDS, shard_bytes=200, host=f"algo-{name}", unit=f"{name}/0-of-1"
        )
    return Dataset(folder)


def test_the_inputs_of_a_dataset_are_read_off_its_manifests(tmp_path):
    data = write(tmp_path, web=(0, 300), code=(1000, 1100), tiny=(5000, 5001))
    found = collect_inputs(data.manifests)
    counts = {name: one.samples for name, one in found.items()}
    assert counts == {"code": 100, "tiny": 1, "web": 300}
    for name, low, high in (("web", 0, 300), ("code", 1000, 1100), ("tiny", 5000, 5001)):
        ids = data.read(found[name].list_first_indices(10**6))["id"].ravel()
        assert sorted(ids.tolist()) == list(range(low, high))
        assert len(found[name].list_first_indices(3)) == min(3, high - low)
    assert len({one.fingerprint for one in found.values()}) == 3
    data = write(tmp_path / "empty", web=(0, 30), empty=(0, 0))
    with pytest.raises(DataError, match="has no sample of input 'empty', only of web; it is too"):
        select_inputs(collect_inputs(data.manifests), ["web", "empty"], tmp_path)
