"""Where no layout fits: the single changes with which one would."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from trainyard.foresight.layouts import Count, fitting, node_counts
from trainyard.foresight.question import Offer, Question

MOST = 1024
"""Nodes beyond which more of them are no remedy."""

CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the optimizer's state in the host's memory (slow)", {"offload": "optimizer"}),
    ("an 8-bit optimizer (Dettmers et al. 2022)", {"optimizer": "adamw_8bit"}),
    ("LoRA adapters of rank 16 in place of all weights", {"lora_rank": 16}),
)
"""What of the training itself can be changed, from what changes its result the least."""


def remedies(question: Question) -> Iterator[str]:
    """The least of each kind of change with which some layout fits: more machines, other machines,
    another training. Empty where none of them is enough."""
    if more := _more(question):
        yield more
    if other := _other(question):
        yield other
    for what, change in CHANGES:
        model = question.model.model_copy(update=change)
        if _any(replace(question, model=model), question.offers, question.max_nodes):
            yield what
            return


def _more(question: Question) -> str | None:
    beyond = [nodes for nodes in node_counts(MOST) if nodes > question.max_nodes]
    for nodes in beyond:
        for offer in question.offers:
            if _fits(question, offer, [nodes]):
                return f"{nodes} × {offer.name}"
    return None


def _other(question: Question) -> str | None:
    cheapest = sorted(question.elsewhere, key=lambda offer: offer.usd_hour)
    found = (offer for offer in cheapest if _any(question, [offer], question.max_nodes))
    return next((f"{offer.name} in their place" for offer in found), None)


def _any(question: Question, offers: Iterable[Offer], most: int) -> bool:
    return any(_fits(question, offer, reversed(node_counts(most))) for offer in offers)


def _fits(question: Question, offer: Offer, counts: Iterable[int]) -> bool:
    """Whether something surely fits on one of so many machines."""
    return any(
        needs.fits == "yes"
        for nodes in counts
        for _, needs in fitting(
            question.model,
            offer.machine,
            nodes,
            question.global_batch,
            question.space,
            question.ask,
            Count(),
        )
    )
