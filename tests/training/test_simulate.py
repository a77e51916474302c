"""The caching allocator's rules: the bytes reserved for a sequence of allocations."""

from hypothesis import given
from hypothesis import strategies as st

from training.simulate import MIB, PAGE, Pool, reserved
from training.simulation.allocations import Event, rounded

sizes = st.one_of(st.integers(1, 4096), st.integers(1, 64 * MIB))


@st.composite
def allocations(draw: st.DrawFn) -> list[Event]:
    """Draw allocations, and ends of some of them, in a possible order."""
    events: list[Event] = []
    alive: list[Event] = []
    for life in range(draw(st.integers(1, 30))):
        made = Event(life, draw(sizes), False)
        alive.append(made)
        events.append(made)
        for _ in range(draw(st.integers(0, min(2, len(alive))))):
            ended = alive.pop(draw(st.integers(0, len(alive) - 1)))
            events.append(Event(ended.life, -ended.size, False))
    return events


@given(allocations(), st.booleans())
def test_what_is_reserved_holds_what_is_alive_at_any_time(events, expandable):
    alive = most = 0
    for event in events:
        alive += rounded(event.size) if event.size > 0 else -rounded(-event.size)
        most = max(most, alive)
    assert reserved(events, expandable=expandable) >= most


@given(allocations(), st.booleans())
def test_no_two_living_blocks_overlap(events, expandable):
    pool, places = Pool("large", expandable), {}
    for event in events:
        if event.size > 0:
            size = rounded(event.size)
            address = pool.take(size)
            for other, length in places.values():
                assert address + size <= other or other + length <= address
            places[event.life] = address, size
        else:
            pool.give(places.pop(event.life)[0])


@given(st.lists(sizes, min_size=1, max_size=20), sizes, st.integers(1, 20))
def test_what_is_freed_is_used_again(unlike, size, count):
    """Segments are of one size: with others best fit may leave too small a remainder."""
    for asked, expandable in ((unlike, True), ([size] * count, False)):
        round_ = [Event(n, size, False) for n, size in enumerate(asked)]
        ends = [Event(n, -size, False) for n, size in enumerate(asked)]
        once = reserved(round_, expandable=expandable)
        assert reserved([*round_, *ends, *round_], expandable=expandable) == once


def test_a_growing_segment_wastes_less_than_a_page():
    asked = [Event(n, 33 * MIB, False) for n in range(7)]
    assert reserved(asked, expandable=True) - 7 * 33 * MIB < PAGE["large"]
    assert reserved(asked, expandable=False) == 7 * 34 * MIB  # each rounded up to 2 MiB
