"""Advice as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from trainyard.foresight.advice import Advice, Candidate, Nearest, guessed, shown
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Question
from trainyard.foresight.reasons import why_not
from trainyard.foresight.rules import rules_of
from trainyard.foresight.setting import Setting
from trainyard.foresight.spread import Spread

RANKED = 20
"""Layouts that are told of; the advice has looked at all of them."""


def as_json(advice: Advice, most: int = RANKED) -> dict[str, Any]:
    """All that a program may ask of an advice; times in seconds and hours, sizes in GiB."""
    question, best = advice.question, shown(advice)
    others = [one for one in advice.ranked[:most] if one not in best]
    return {
        "question": _asked(question),
        "layouts": {
            "looked_at": advice.count.layouts,
            "fit": advice.count.fit,
            "refused": advice.count.refused,
        },
        "advised": [_told(one, best[0], question) for one in best],
        "ranked": [_told(one, best[0], question) for one in others],
        "frontier": [_point(one) for one in advice.frontier],
        "nearest": _nearest(advice.nearest),
        "remedies": list(advice.remedies),
        "guessed": guessed(advice),
        "rules": rules_of(question),
    }


def _asked(question: Question) -> dict[str, Any]:
    return {
        "parameters": question.parameters,
        "tokens": question.tokens,
        "global_batch": question.global_batch,
        "sequence": question.model.sequence,
        "steps": question.steps,
        "deadline_hours": question.deadline,
        "budget_usd": question.budget,
        "instances": [asdict(offer) for offer in question.offers],
        "max_nodes": question.max_nodes,
        "how": question.how,
        "region": question.region,
        "learned": question.learned,
    }


def _told(one: Candidate, best: Candidate, question: Question) -> dict[str, Any]:
    return {
        **_point(one),
        "setting": _given(one.setting),
        "memory_gib": _memory(one.memory),
        "step_seconds": _spread(one.time.step_seconds),
        "parts": dict(one.time.parts),
        "tokens_per_second_per_gpu": _spread(one.time.tokens_per_second_per_gpu),
        "mfu": one.time.mfu,
        "run": _run(one),
        "why_not": None if one is best else why_not(one, best, question),
    }


def _run(one: Candidate) -> dict[str, Any] | None:
    if one.whole is None:
        return None
    outcome, saving = one.whole.outcome, one.whole.saving
    return {
        "interruptions": _spread(outcome.interruptions),
        "useful": outcome.useful,
        "finished": outcome.finished,
        "fell_back": outcome.fell_back,
        "save_every_seconds": saving.interval,
        "save_stall_seconds": saving.stall,
    }


def _point(one: Candidate) -> dict[str, Any]:
    return {
        "instance_type": one.offer.name,
        "instances": one.nodes,
        "hours": _spread(one.hours),
        "usd": _spread(one.usd),
        "price_estimated": one.offer.estimated,
    }


def _given(setting: Setting) -> dict[str, Any]:
    """A row of ``trainyard advise --rows``: what differs from the defaults."""
    return setting.model_dump(exclude_defaults=True)


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "peak": _spread(memory.peak),
        "usable": memory.usable_gib,
        "fits": memory.fits,
        "when": memory.when,
        "stage": memory.stage,
        "categories": {name: _spread(size) for name, size in memory.categories.items()},
    }


def _nearest(near: Nearest | None) -> dict[str, Any] | None:
    if near is None:
        return None
    return {
        "instance_type": near.offer.name,
        "instances": near.nodes,
        "setting": _given(near.setting),
        "memory_gib": _memory(near.memory),
    }


def _spread(spread: Spread) -> Mapping[str, float | None]:
    """JSON has no ∞: null stands for what never comes."""
    return {name: value if isfinite(value) else None for name, value in asdict(spread).items()}
