"""Advice: what is ranked, and how, and what is said where nothing fits."""

from dataclasses import replace

import pytest

from trainyard.foresight.advice import Advice, Candidate, advise, select_layouts
from trainyard.foresight.advice_display import explain_missed_bound, explain_rank, format_count
from trainyard.foresight.interval import Spread
from trainyard.foresight.layouts import Space
from trainyard.foresight.model_shapes import get_model
from trainyard.foresight.question import Question, iter_offers
from trainyard.foresight.setting import Setting

pytestmark = pytest.mark.long

OFFERS = {offer.name: offer for offer in iter_offers("us-east-1")}
P4D, P5 = OFFERS["ml.p4d.24xlarge"], OFFERS["ml.p5.48xlarge"]
SMALL = Space(pipeline=(1, 2, 4), interleave=(1,), context=(1,), micro_batch=(1, 2, 4))


def question(name: str = "llama-3-8b", **changed) -> Question:
    model = Setting(gpu="H100-80", compile=True, **get_model(name).shape)
    asked = Question(
        model=model, tokens=1e12, global_batch=512, offers=[P4D, P5], max_nodes=16, space=SMALL
    )
    return replace(asked, **changed)


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advise(question())


@pytest.fixture(scope="module")
def ranked_candidates(advice: Advice) -> tuple[Candidate, ...]:
    return advice.ranking


def test_every_candidate_trains_the_same_and_may_fit(ranked_candidates: tuple[Candidate, ...]):
    asked = question()
    assert len(ranked_candidates) > 100
    for one in ranked_candidates:
        assert one.memory.fits != "no"
        assert one.setting.tokens == 512 * 8192
        hours = asked.steps * one.time.step_seconds.p50 / 3600
        assert hours * 0.98 < one.hours.p50 < hours * 1.2
        assert one.hours.p10 < one.hours.p50 < one.hours.p90
        undisturbed = hours * one.nodes * one.offer.usd_hour
        assert undisturbed * 0.98 < one.usd.p50 < 1.2 * undisturbed


def test_with_a_deadline_the_cheapest_that_keeps_it_nine_times_of_ten_is_first():
    asked = question(deadline=30 * 24.0)
    ranked = advise(asked).ranking
    kept = [o for o in ranked if o.hours.p90 <= 720 and o.memory.fits == "yes"]
    assert kept and ranked[0] in kept
    assert ranked[0].usd.p50 <= min(one.usd.p50 for one in kept) * 1.02
    worse = next(one for one in ranked if one.hours.p90 > 720 and one.memory.fits == "yes")
    assert "misses the deadline" in explain_rank(worse, ranked[0], asked)
    short = question(deadline=1.0)
    best = advise(short).ranking[0]
    assert "misses the deadline" in (explain_missed_bound(best, short) or "")
    slow = replace(best.time, step_seconds=_around(9))
    later = replace(best, hours=best.hours.scale(2), time=slow)
    assert "deadline" not in explain_rank(later, best, short)  # which nothing keeps


def test_with_a_budget_the_fastest_within_it_is_first(ranked_candidates: tuple[Candidate, ...]):
    cheapest = min(one.usd.p90 for one in ranked_candidates if one.memory.fits == "yes")
    asked = question(budget=cheapest * 1.1)
    best = advise(asked).ranking[0]
    assert best.usd.p90 <= asked.budget
    kept = [o for o in ranked_candidates if o.usd.p90 <= cheapest * 1.1 and o.memory.fits == "yes"]
    assert best.hours.p50 <= min(one.hours.p50 for one in kept) * 1.02


def test_of_layouts_that_are_alike_the_simpler_is_first():
    asked = question(offers=[P5], max_nodes=1, deadline=1e6)
    best = advise(asked).ranking[0]
    assert (best.setting.tensor, best.setting.pipeline) == (1, 1)


def test_what_is_shown_differs_in_machines_or_in_strategy(advice: Advice):
    best = select_layouts(advice)
    assert 4 < len(best) <= 8
    assert len({(one.machines, one.parallelism_key) for one in best}) == len(best)
    assert len({one.machines for one in best}) > 2


def test_a_slower_layout_is_told_by_the_part_that_slows_it(
    ranked_candidates: tuple[Candidate, ...],
):
    asked = question()
    best = ranked_candidates[0]
    parts = dict(best.time.parts)
    step = best.time.step_seconds.p50
    parts["tensor parallel"] = parts.get("tensor parallel", 0) + step
    slow = replace(best, time=replace(best.time, step_seconds=_around(2 * step), parts=parts))
    said = explain_rank(slow, best, asked)
    assert "100% slower a step" in said and "of it is tensor parallel" in said
    close = replace(best, time=replace(best.time, step_seconds=_around(1.05 * step)))
    assert "too close to say at ±10%" in explain_rank(close, best, asked)
    assert explain_rank(best, best, asked) == "as fast as the first"


def _around(seconds: float) -> Spread:
    return Spread.from_median(seconds, 0.9, 1.1)


def test_where_nothing_fits_a_change_is_named_with_which_something_does():
    asked = question("llama-3-70b", offers=[P4D], elsewhere=[P5], max_nodes=1)
    advice = advise(asked)
    assert not advice.ranking
    more = next(line for line in advice.remedies if "× ml.p4d.24xlarge" in line)
    nodes = int(more.split(" ")[0])
    assert advise(replace(asked, max_nodes=nodes)).ranking
    assert not any(one.memory.fits == "yes" for one in advise(replace(asked, max_nodes=1)).ranking)


def test_spot_is_cheaper_and_less_sure():
    few = Space(tensor=(1,), pipeline=(1,), context=(1,))
    asked = question(space=few, offers=[P4D], max_nodes=8)
    demand, spot = advise(asked).ranking, advise(replace(asked, how="spot")).ranking
    there = {(one.machines, one.setting): one for one in demand}
    for one in spot:
        other = there[one.machines, one.setting]
        assert one.usd.p50 < other.usd.p50 and one.hours.p90 > other.hours.p90


@pytest.mark.parametrize(
    ("number", "text"), [(1.4e12, "1.4 T"), (7e10, "70 B"), (4.19e6, "4.19 M"), (12, "12")]
)
def test_counts(number: float, text: str):
    assert format_count(number) == text
