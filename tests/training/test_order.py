"""The order of samples: every one once an epoch, whatever the number of ranks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.data.order import GlobalOrder, micro_batches, permutation


@given(st.text(), st.integers(0, 2**32 - 1), st.integers(0, 5), st.integers(1, 500))
def test_an_epoch_is_a_permutation(fingerprint, seed, epoch, samples):
    order = permutation(fingerprint, seed, epoch, samples)
    assert sorted(order) == list(range(samples))
    assert (order == permutation(fingerprint, seed, epoch, samples)).all()


def test_fingerprint_seed_and_epoch_all_change_the_order():
    orders = [permutation(f, s, e, 1000) for f in "ab" for s in (0, 1) for e in (0, 1)]
    assert len({order.tobytes() for order in orders}) == 8


@given(
    world=st.integers(1, 64),
    micro=st.integers(1, 8),
    accumulation=st.integers(1, 4),
    samples=st.integers(1, 300),
    step=st.integers(0, 50),
)
def test_ranks_share_out_the_same_global_batch(world, micro, accumulation, samples, step):
    batch = world * micro * accumulation

    def read(world: int, micro: int) -> np.ndarray:
        order = GlobalOrder("f", 0, samples)
        parts = [
            micro_batches(
                order, step, global_batch=batch, micro_batch=micro, rank=rank, world=world
            )
            for rank in range(world)
        ]
        assert {len(m) for part in parts for m in part} == {micro}
        return np.concatenate([m for part in parts for m in part])

    alone = read(1, batch)
    assert (read(world, micro) == alone).all()
    expected = GlobalOrder("f", 0, samples).at(step * batch, batch)
    assert (alone == expected).all()


@given(samples=st.integers(1, 60), batch=st.integers(1, 25), data=st.data())
def test_steps_run_through_whole_epochs_from_any_step(samples, batch, data):
    steps = -(-3 * samples // batch)
    order = GlobalOrder("f", 0, samples)
    stream = np.concatenate([order.at(step * batch, batch) for step in range(steps)])
    for epoch in range(3):
        assert sorted(stream[epoch * samples :][:samples]) == list(range(samples))
    if samples > 20:
        assert len({stream[epoch * samples :][:samples].tobytes() for epoch in range(3)}) == 3
    resumed = data.draw(st.integers(0, steps - 1))
    fresh = GlobalOrder("f", 0, samples).at(resumed * batch, batch)
    assert (fresh == stream[resumed * batch :][:batch]).all()
