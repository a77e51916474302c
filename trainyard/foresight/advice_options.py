"""Options and output that the advising verbs have in common."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from trainyard.common.errors import RecipeError, nearest
from trainyard.foresight import measured_corrections
from trainyard.foresight.advice import Advice, Candidate, Nearest, shown
from trainyard.foresight.advice_display import picture, why_not
from trainyard.foresight.gpus import GPUS
from trainyard.foresight.interval import Spread
from trainyard.foresight.layouts import Space
from trainyard.foresight.memory import Memory
from trainyard.foresight.question import Offer, Question, dollars, hours, offers
from trainyard.foresight.setting import Setting
from trainyard.plan.prices import load
from trainyard.terminal import console

RANKED = 20
"""Layouts in the output, at most; the advice has examined all of them."""


def as_json(advice: Advice, most: int = RANKED) -> dict[str, Any]:
    """Return an advice as a JSON object; times in seconds and hours, sizes in GiB."""
    question, best = advice.question, shown(advice)
    others = [one for one in advice.ranked[:most] if one not in best]
    return {
        "question": _asked(question),
        "layouts": {
            "looked_at": advice.count.layouts,
            "fit": advice.count.fit,
            "refused": advice.count.refused,
        },
        "advised": [_layout(one, best[0], question) for one in best],
        "ranked": [_layout(one, best[0], question) for one in others],
        "nearest": _nearest(advice.nearest),
        "remedies": list(advice.remedies),
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


def _layout(one: Candidate, best: Candidate, question: Question) -> dict[str, Any]:
    return {
        "instance_type": one.offer.name,
        "instances": one.nodes,
        "hours": _spread(one.hours),
        "usd": _spread(one.usd),
        "price_estimated": one.offer.estimated,
        "setting": _given(one.setting),
        "memory_gib": _memory(one.memory),
        "step_seconds": _spread(one.time.step_seconds),
        "parts": dict(one.time.parts),
        "tokens_per_second_per_gpu": _spread(one.time.tokens_per_second_per_gpu),
        "mfu": one.time.mfu,
        "run": {
            "interruptions": _spread(one.run.interruptions),
            "useful": one.run.useful,
            "save_every_seconds": one.run.save_interval,
            "save_stall_seconds": one.run.save_stall,
        },
        "why_not": None if one is best else why_not(one, best, question),
    }


def _given(setting: Setting) -> dict[str, Any]:
    """Return a row of ``trainyard advise --rows``: the fields that differ from the defaults."""
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
    """Return the deciles; JSON has no ∞: null stands for never."""
    return {name: value if isfinite(value) else None for name, value in asdict(spread).items()}


if TYPE_CHECKING:
    from trainyard.runs.measured_trainings import SettingOf

NOTHING_FITS = 3
USUAL = "ml.p4d.24xlarge,ml.p5.48xlarge,ml.p5en.48xlarge"

DeadlineOption = Annotated[str | None, typer.Option(help="Time limit at p90: 36h, 30d, 2w.")]
BudgetOption = Annotated[
    float | None, typer.Option(help="Cost limit at p90 in USD, such as 250k.", parser=dollars)
]
InstancesOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE,…", help=f"Instance types to choose from; default: a recipe's, else {USUAL}."
    ),
]
MaxNodesOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=100_000, help="Largest number of instances; default: 64, of a recipe's 16."
    ),
]
SpotOption = Annotated[bool, typer.Option("--spot", help="Use spot instances.")]
CalibrateOption = Annotated[
    str | None,
    typer.Option(
        "--calibrate",
        metavar="EXECUTION|all",
        help="Instead: correct predictions by what an execution's trainings took.",
    ),
]

_SPACE = TypeAdapter(Space)
CHOSEN = frozenset(field.name for field in fields(Space)) - {"refuse", "hybrid", "shortest_share"}
"""Fields of a setting that make up a layout: the given values are chosen from."""


def learn(execution: str, setting_of: "SettingOf") -> None:
    """Correct predictions by an execution's trainings, and print the result.

    Raises:
        ForesightError: no training counts; says why.
        ServiceError: the execution does not exist, or AWS cannot be reached.
    """
    from trainyard.runs.measured_trainings import (
        calibrate,  # loads boto3, which advice does not need
    )

    for line in calibrate(execution, setting_of):
        console.print(line, highlight=False, markup=False)


def corrected(offers: Sequence[Offer]) -> dict[str, Any]:
    """Return the question's fields that correct predictions by your own trainings; empty where the
    working directory has no calibration.
    """
    learned = measured_corrections.read()
    counts = {offer.machine.gpu: learned.count(offer.machine.gpu) for offer in offers}
    said = ", ".join(f"{count} on {gpu}" for gpu, count in counts.items() if count)
    if not said:
        return {}
    return {
        "time": learned.time,
        "learned": f"Corrected by trainings of your own: {said} ({measured_corrections.PLACE})",
    }


def deadline_hours(text: str | None) -> float | None:
    """Return the hours until the deadline; None without one."""
    return None if text is None else hours("--deadline", text)


def allowed(text: str, region: str, where: str = "--instances") -> tuple[list[Offer], list[Offer]]:
    """Return (the instance types to choose from, all others).

    Args:
        where: name of the option or field that has the text, for the message.

    Raises:
        RecipeError: a type is unknown, or has no GPU or no price in the region; or SageMaker has no
            such region.
    """
    _refuse_region(region)
    there = {offer.name: offer for offer in offers(region)}
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in there:
            raise RecipeError(
                f"{where} {name}: no training on it can be predicted in {region}: no such type, "
                f"no GPU of trainyard/foresight/gpus.csv, or no price; {nearest(name, [*there])}"
                + ("" if where == "--instances" else "; name types with --instances")
            )
    return [there[name] for name in names], [o for o in there.values() if o.name not in names]


def _refuse_region(region: str) -> None:
    if load(region).date is not None:
        return
    from botocore.session import Session  # takes a tenth of a second

    session = Session()
    partitions = session.get_available_partitions()
    known = {r for name in partitions for r in session.get_available_regions("sagemaker", name)}
    if region not in known:
        raise RecipeError(
            f"region {region}: SageMaker has no region of that name; "
            f"{nearest(region, sorted(known))}; set --region, or aws.region in a recipe"
        )


def multiplying(offers: Sequence[Offer], precisions: Sequence[str]) -> list[Offer]:
    """List the ``offers`` whose devices multiply in one of ``precisions``.

    Raises:
        RecipeError: no device does.
    """
    found = [o for o in offers if {*precisions} - {"fp8"} or GPUS[o.machine.gpu].fp8_tflops]
    if not found:
        names = ", ".join(f"{offer.name} ({offer.machine.gpu})" for offer in offers)
        raise RecipeError(
            f"precision fp8: {names}: expected a device with fp8, such as H100 or L40S; name "
            "other types with --instances, or take precision bf16"
        )
    return found


def space(given: Mapping[str, str], within: Space = Space()) -> Space:  # noqa: B008
    """Return the layouts to choose from: ``within``, with the given fields (``4,8``) replaced.

    Raises:
        RecipeError: a value is invalid.
    """
    try:
        read = _SPACE.validate_python({name: text.split(",") for name, text in given.items()})
    except ValidationError as error:
        raise RecipeError(first_problem(error, CHOSEN)) from None
    order = {"shard": within.shard, "recompute": within.recompute}
    chosen: dict[str, Any] = {}
    for name in given:
        value = getattr(read, name)
        chosen[name] = sorted(value, key=order[name].index if name in order else None)
    if "context" in given:  # asked for explicitly: allow short sequences
        chosen["shortest_share"] = 1
    return replace(within, **chosen)


def first_problem(error: ValidationError, known: Sequence[str] | frozenset[str]) -> str:
    """Return a message about the first invalid field of ``--set``."""
    found = error.errors()[0]
    name = str(found["loc"][0]) if found["loc"] else ""
    if found["type"] == "missing":
        return f"--{name}: is missing; give it, --model NAME or --shapes FILE"
    if found["type"] == "extra_forbidden":
        return f"--set {name}: unknown field; {nearest(name, sorted(known))}"
    message = found["msg"].removeprefix("Value error, ")
    return f"--set {name}={found['input']}: {message}" if name else message


def tell(advice: Advice, as_text: bool) -> None:
    """Print the advice, as JSON or for people."""
    if as_text:
        print(json.dumps(as_json(advice), indent=1))
    else:
        console.print(picture(advice), highlight=False, markup=False)
