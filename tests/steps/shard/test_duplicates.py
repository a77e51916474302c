"""The first of equal records stays, in bounded memory."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steps.shard.duplicates import MEMORY, Recent

batches = st.lists(st.lists(st.integers(0, 60), max_size=40), max_size=12)


def first(recent: Recent, batches: Sequence[Sequence[int]]) -> list[bool]:
    return [bool(one) for batch in batches for one in recent.first(np.array(batch, np.uint64))]


@given(batches)
def test_what_fits_into_the_memory_is_exact_whatever_the_batches(batches):
    values = [value for batch in batches for value in batch]
    expected = [value not in values[:place] for place, value in enumerate(values)]
    assert first(Recent(), batches) == expected
    assert first(Recent(), [values]) == expected


@given(batches)
def test_beyond_the_memory_only_old_ones_are_forgotten(batches):
    memory = 16
    recent = Recent(memory)
    kept: list[int] = []
    for batch in batches:
        remembered = kept[-(memory - memory // 8) :]
        new = first(recent, [batch])
        for place, value in enumerate(batch):
            if value in batch[:place] or value in remembered:
                assert not new[place]
            elif value not in kept:
                assert new[place]
        kept += [value for value, one in zip(batch, new, strict=True) if one]
        assert sum(map(len, recent._runs)) <= memory


def test_memory_is_bounded_and_runs_are_few():
    recent = Recent(2**16)
    source = np.random.default_rng(0)
    for _ in range(60):
        recent.first(source.integers(0, 2**63, 5000).astype(np.uint64))
        assert sum(map(len, recent._runs)) <= 2**16
        assert len(recent._runs) < 40
    assert MEMORY * 8 == 64 * 2**20


def test_the_last_distinct_records_are_remembered():
    memory = 2**12
    recent = Recent(memory)
    values = np.random.default_rng(0).permutation(memory * 4).astype(np.uint64)
    for batch in np.split(values, 64):
        assert recent.first(batch).all()
    remembered = memory - memory // 8
    assert not recent.first(values[-remembered:]).any()
