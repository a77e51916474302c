"""Advice as JSON: times in seconds and hours, sizes in GiB."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from math import isfinite
from typing import Any

from trainyard.foresight.advice import Advice, Candidate, select_layouts
from trainyard.foresight.advice_display import why_not
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Question

RANK_LIMIT = 20
"""Layouts in the output, at most; the advice has examined all of them."""


def as_json(advice: Advice) -> dict[str, Any]:
    """Return an advice as a JSON object."""
    question, count, best = advice.question, advice.count, select_layouts(advice)
    others = [candidate for candidate in advice.ranking[:RANK_LIMIT] if candidate not in best]
    near = advice.nearest
    return _plain(
        {
            "question": _format_question(question),
            "layouts": {
                "looked_at": count.layouts,
                "fit": count.fit,
                "refused": count.refusal_count,
            },
            "advised": [_layout(candidate, best[0], question) for candidate in best],
            "ranked": [_layout(candidate, best[0], question) for candidate in others],
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


def _format_question(question: Question) -> dict[str, Any]:
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


def _layout(candidate: Candidate, best: Candidate, question: Question) -> dict[str, Any]:
    return {
        "instance_type": candidate.offer.name,
        "instances": candidate.nodes,
        "hours": candidate.hours,
        "usd": candidate.usd,
        "price_estimated": candidate.offer.is_estimated,
        "setting": candidate.setting.model_dump(exclude_defaults=True),  # a row of advise --rows
        "memory_gib": _memory(candidate.memory),
        "step_seconds": candidate.time.step_seconds,
        "parts": candidate.time.parts,
        "tokens_per_second_per_gpu": candidate.time.tokens_per_second_per_gpu,
        "mfu": candidate.time.mfu,
        "run": {
            "interruptions": candidate.run.interruptions,
            "useful": candidate.run.useful,
            "save_every_seconds": candidate.run.save_interval,
            "save_stall_seconds": candidate.run.save_stall,
        },
        "why_not": None if candidate is best else why_not(candidate, best, question),
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
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
