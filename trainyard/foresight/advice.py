"""Choose machines, their number and a layout: predict all possibilities, and rank them.

A layout is a way in which the ranks share the work. The step time is predicted for every layout
that fits in memory. How much longer interruptions make a training run is computed once for each
type and number of machines, with the fastest layout on them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import isfinite, log
from typing import Any

from trainyard.foresight import interrupted_run
from trainyard.foresight.cloud_machines import TABLE, make_machines
from trainyard.foresight.interrupted_run import Run
from trainyard.foresight.interval import Spread
from trainyard.foresight.layouts import Count, iter_fitting_layouts, list_node_counts
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Offer, Question
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import Time

SIMILARITY = 1.02
"""Layouts whose aims (see ``_compute_aim``) differ by a smaller factor are ordered by their
simplicity: two releases of the same framework differ by 1.3 % on the same table (median; NeMo's
performance summaries)."""
NEVER = 10**6
"""Distance from the best, in factors of SIMILARITY, for a training run that never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout on a number of machines, with its predictions."""

    offer: Offer
    nodes: int
    setting: Setting
    memory: Memory
    time: Time
    hours: Spread
    """Hours until the training run is complete, interruptions included."""

    usd: Spread
    run: Run
    """Prediction with interruptions, for the fastest layout on these machines."""

    @property
    def machines(self) -> tuple[str, int]:
        """Type and number of the machines."""
        return self.offer.name, self.nodes

    @property
    def parallelism_key(self) -> tuple[Any, ...]:
        """The way in which the ranks share the work.

        Micro-batch, recomputation and ``interleave`` do not count.
        """
        it = self.setting
        return it.shard, it.shard_degree, it.tensor, it.pipeline, it.context, it.precision


@dataclass(frozen=True, slots=True)
class Advice:
    """The ranked layouts for a question, or remedies if none fits."""

    question: Question
    ranking: tuple[Candidate, ...]
    """Layouts that fit or may fit, the best first."""

    count: Count
    remedies: tuple[str, ...]
    """Single changes with which some layout would fit; empty if some layout fits already."""


def advise(question: Question) -> Advice:
    """Predict and rank all layouts that fit."""
    count, all_candidates = Count(), list[Candidate]()
    for offer in question.offers:
        for nodes in list_node_counts(question.max_nodes):
            layouts = _iter_fitting_layouts(question, offer, nodes, count)
            all_candidates += predict_candidates(question, offer, nodes, layouts)
    ranking = _rank_candidates(all_candidates, question)
    change = () if all_candidates else tuple(iter_remedies(question))
    return Advice(question, ranking, count, change)


def predict_candidates(
    question: Question, offer: Offer, nodes: int, layouts: Iterable[tuple[Setting, Memory]]
) -> list[Candidate]:
    """Return the predictions for layouts on ``nodes`` machines.

    The waits, losses and saves of a training run are computed for the fastest layout. For the other
    layouts, hours and cost are scaled by how much longer their steps take.
    """
    timings = [(s, needs, question.time(s, question.shapes)) for s, needs in layouts]
    if not timings:
        return []
    fastest = min((time.step_seconds for _, _, time in timings), key=lambda step: step.p50)
    run = interrupted_run.predict_interrupted_run(
        make_machines(
            offer.name, nodes, question.how, region=question.region, usd_hour=offer.usd_hour
        ),
        question.parameters,
        fastest,
        question.steps,
        saved_bytes=TABLE["checkpoints"]["bytes"] * question.trained_parameters,
    )
    return [
        Candidate(
            offer=offer,
            nodes=nodes,
            setting=setting,
            memory=needs,
            time=time,
            hours=run.hours.scale(time.step_seconds.p50 / fastest.p50),
            usd=run.usd.scale(time.step_seconds.p50 / fastest.p50),
            run=run,
        )
        for setting, needs, time in timings
    ]


def _rank_candidates(all_candidates: list[Candidate], question: Question) -> tuple[Candidate, ...]:
    """Return the candidates, the best first.

    Layouts that surely fit come first; then those that meet deadline and budget at p90; then the
    order is that of the aim. Among layouts with similar aims, the simpler comes first.
    """
    keys = {}
    for candidate in all_candidates:
        is_unsure = candidate.memory.fits != "yes"
        late = question.deadline is not None and candidate.hours.p90 > question.deadline
        dear = question.budget is not None and candidate.usd.p90 > question.budget
        keys[id(candidate)] = (is_unsure, late or dear, _compute_aim(candidate, question))
    lowest_aims: dict[tuple[bool, bool], float] = {}
    for unsure, is_missed, aim in keys.values():
        lowest_aims[unsure, is_missed] = min(aim, lowest_aims.get((unsure, is_missed), aim))

    def make_sort_key(candidate: Candidate) -> tuple[Any, ...]:
        """Return the sort key of a candidate; the best has the lowest."""
        unsure, is_missed, aim = keys[id(candidate)]
        ratio = aim / lowest_aims[unsure, is_missed]
        tier = int(log(ratio) / log(SIMILARITY)) if isfinite(ratio) else NEVER
        return unsure, is_missed, tier, compute_complexity(candidate.setting), aim

    return tuple(sorted(all_candidates, key=make_sort_key))


def compute_complexity(setting: Setting) -> int:
    """Return a layout's complexity: a score for the effort of its setup and for its risks."""
    degrees = (setting.tensor, setting.pipeline, setting.interleave, setting.context)
    return sum(degree > 1 for degree in degrees) * 2 + (setting.shard_degree > 0)


def _compute_aim(candidate: Candidate, question: Question) -> float:
    """Return the figure of a candidate that the ranking minimises.

    With a deadline it is the cost, or the time if the deadline is missed. With only a budget it is
    the time. With neither it is the product of time and cost.
    """
    if question.deadline is not None:
        late = candidate.hours.p90 > question.deadline
        return candidate.hours.p50 if late else candidate.usd.p50
    return candidate.hours.p50 * (1 if question.budget is not None else candidate.usd.p50)


def select_layouts(advice: Advice, limit: int = 8) -> list[Candidate]:
    """Return the layouts to show, at most ``limit``.

    These are the best layout of each strategy on the machines of the first candidate, at most four,
    and the best layout on each other type or number of machines.
    """
    kinds: dict[Any, Candidate] = {}
    for candidate in advice.ranking:
        is_same_place = candidate.machines == advice.ranking[0].machines
        if (
            not is_same_place
            or sum(kind.machines == candidate.machines for kind in kinds.values()) < 4
        ):
            kinds.setdefault(
                (candidate.machines, candidate.parallelism_key if is_same_place else None),
                candidate,
            )
    return [*kinds.values()][:limit]


MOST = 1024
"""Largest number of nodes that is suggested as a remedy."""

CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the optimizer's state in the host's memory (slow)", {"offload": "optimizer"}),
    ("an 8-bit optimizer (Dettmers et al. 2022)", {"optimizer": "adamw_8bit"}),
    ("LoRA adapters of rank 16 in place of all weights", {"lora_rank": 16}),
)
"""Possible changes of the training run, those with the smallest effect on its result first."""


def iter_remedies(question: Question) -> Iterator[str]:
    """Iterate over single changes with which some layout fits: the smallest one of each kind.

    The kinds are more machines, other machines, and another way of training. There are none if no
    single change is enough.
    """
    few = list_node_counts(question.max_nodes)[::-1]
    larger_offers = [
        (o, n) for n in list_node_counts(MOST) if n > question.max_nodes for o in question.offers
    ]
    for offer, nodes in larger_offers:
        if _has_fitting_layout(question, offer, [nodes]):
            yield f"{nodes} × {offer.name}"
            break
    for offer in sorted(question.elsewhere, key=lambda offer: offer.usd_hour):
        if _has_fitting_layout(question, offer, few):
            yield f"{offer.name} instead"
            break
    for remedy, change in CHANGES:
        variant = replace(question, model=question.model.model_copy(update=change))
        if any(_has_fitting_layout(variant, offer, few) for offer in question.offers):
            yield remedy
            return


def _has_fitting_layout(question: Question, offer: Offer, counts: Iterable[int]) -> bool:
    """Return whether some layout surely fits on one of these numbers of machines."""
    return any(
        needs.fits == "yes"
        for nodes in counts
        for _, needs in _iter_fitting_layouts(question, offer, nodes, Count())
    )


def _iter_fitting_layouts(
    question: Question, offer: Offer, nodes: int, count: Count
) -> Iterator[tuple[Setting, Memory]]:
    """Iterate over (layout, memory) of the layouts that fit, and update ``count``."""
    batch, ask = question.global_batch, question.predict_memory
    return iter_fitting_layouts(
        question.model, offer.machine, nodes, batch, question.space, ask, count
    )
