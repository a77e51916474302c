"""Advice as JSON: times in seconds and hours, sizes in GiB."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from math import isfinite
from typing import Any

from trainyard.foresight.advice import Advice, Candidate, shown
from trainyard.foresight.advice_display import why_not
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Question

RANKED = 20
"""Layouts in the output, at most; the advice has examined all of them."""


def as_json(advice: Advice) -> dict[str, Any]:
    """Return an advice as a JSON object."""
    question, count, best = advice.question, advice.count, shown(advice)
    others = [one for one in advice.ranked[:RANKED] if one not in best]
    near = advice.nearest
    return _plain(
        {
            "question": _asked(question),
            "layouts": {"looked_at": count.layouts, "fit": count.fit, "refused": count.refused},
            "advised": [_layout(one, best[0], question) for one in best],
            "ranked": [_layout(one, best[0], question) for one in others],
            "nearest": near
            and {
                "instance_type": near.offer.name,
                "instances": near.nodes,
                "setting": near.setting.model_dump(exclude_defaults=True),
                "memory_gib": _memory(near.memory),
            },
            "remedies": advice.remedies,
        }
    )


def _asked(question: Question) -> dict[str, Any]:
    return {
        "parameters": question.parameters,
        "tokens": question.tokens,
        "global_batch": question.global_batch,
        "sequence": question.model.sequence,
        "steps": question.steps,
        "deadline_hours": question.deadline,
        "budget_usd": question.budget,
        "instances": question.offers,
        "max_nodes": question.max_nodes,
        "how": question.how,
        "region": question.region,
        "learned": question.learned,
    }


def _layout(one: Candidate, best: Candidate, question: Question) -> dict[str, Any]:
    return {
        "instance_type": one.offer.name,
        "instances": one.nodes,
        "hours": one.hours,
        "usd": one.usd,
        "price_estimated": one.offer.estimated,
        "setting": one.setting.model_dump(exclude_defaults=True),  # a row of advise --rows
        "memory_gib": _memory(one.memory),
        "step_seconds": one.time.step_seconds,
        "parts": one.time.parts,
        "tokens_per_second_per_gpu": one.time.tokens_per_second_per_gpu,
        "mfu": one.time.mfu,
        "run": {
            "interruptions": one.run.interruptions,
            "useful": one.run.useful,
            "save_every_seconds": one.run.save_interval,
            "save_stall_seconds": one.run.save_stall,
        },
        "why_not": None if one is best else why_not(one, best, question),
    }


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "peak": memory.peak,
        "usable": memory.usable_gib,
        "fits": memory.fits,
        "when": memory.when,
        "stage": memory.stage,
        "categories": memory.categories,
    }


def _plain(value: Any) -> Any:
    """Return JSON's form of a value; it has no ∞: null stands for never."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
