"""Training plans: machines that are bought ahead, for a time. Their prices AWS tells who asks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from rich import box
from rich.table import Table

from trainyard.common.errors import ServiceError
from trainyard.foresight.advice import Candidate
from trainyard.service import client, service_errors

OPERATION = "SearchTrainingPlanOfferings"
TARGET = "training-job"
MINUTES = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """A plan that can be bought now, as ``SearchTrainingPlanOfferings`` answers it."""

    offering: str
    """Its ID, which ``CreateTrainingPlan`` takes."""

    starts: datetime | None
    """When its first machines are there; None where the answer does not say it."""

    hours: float
    """For which the machines are there."""

    fee: float | None
    """For all machines, paid when it is bought; None where the answer does not say it."""

    currency: str
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What was asked for, and what is on offer; the cheapest is first."""

    instance_type: str
    nodes: int
    hours: int
    """At least: p90 of the run, in whole hours."""

    usd_hour: float
    """Of one instance, on demand."""

    plans: Sequence[TrainingPlan]
    why_none: str = ""

    def over_on_demand(self, plan: TrainingPlan) -> float | None:
        """A plan's fee over the price on demand of as many hours; None where that is not known."""
        if plan.fee is None or plan.currency != "USD" or not plan.hours:
            return None
        return plan.fee / (self.usd_hour * self.nodes * plan.hours)


def search(first: Candidate, region: str, sagemaker: Any = None) -> Search:
    """Ask AWS which plans have the machines of a layout for as long as it takes (p90).

    Refusals and failures are no errors here: the answer says them in ``why_none``.

    Args:
        sagemaker: a boto3 client; else one of the region's.
    """
    name, nodes, hours = first.offer.name, first.nodes, ceil(first.hours.p90)
    plans: list[TrainingPlan] = []
    why = ""
    try:
        sagemaker = sagemaker or client("sagemaker", region)
        operation = sagemaker.meta.service_model.operation_model(OPERATION)
        known = operation.input_shape.members["InstanceType"].enum
        if name in known:
            with service_errors("asking AWS"):
                found = sagemaker.search_training_plan_offerings(
                    InstanceType=name,
                    InstanceCount=nodes,
                    DurationHours=hours,
                    TargetResources=[TARGET],
                )
            plans = [_read(one) for one in found["TrainingPlanOfferings"]]
            why = "" if plans else "none is on offer"
        else:
            why = f"there are none of {name}; there are of {', '.join(sorted(known))}"
    except ServiceError as error:
        denied = "AccessDenied" in str(error)
        why = f"{error}" + (f"; allow sagemaker:{OPERATION} on *" if denied else "")
    plans.sort(key=lambda one: float("inf") if one.fee is None else one.fee)
    return Search(
        instance_type=name,
        nodes=nodes,
        hours=hours,
        usd_hour=first.offer.usd_hour,
        plans=plans,
        why_none=why,
    )


def _read(one: Mapping[str, Any]) -> TrainingPlan:
    reserved = one.get("ReservedCapacityOfferings", [])
    starts = [part["StartTime"] for part in reserved if "StartTime" in part]
    zones = dict.fromkeys(
        part["AvailabilityZone"] for part in reserved if "AvailabilityZone" in part
    )
    fee = one.get("UpfrontFee")
    return TrainingPlan(
        offering=one["TrainingPlanOfferingId"],
        starts=min(starts, default=one.get("RequestedStartTimeAfter")),
        hours=one.get("DurationHours", 0) + one.get("DurationMinutes", 0) / MINUTES,
        fee=None if fee is None else float(fee),
        currency=one.get("CurrencyCode", "USD"),
        zones=tuple(zones),
    )


def as_json(found: Search) -> dict[str, Any]:
    """What was asked for, and a row a plan."""
    return {
        "instance_type": found.instance_type,
        "nodes": found.nodes,
        "hours": found.hours,
        "why_none": found.why_none,
        "plans": [
            {
                "offering": plan.offering,
                "starts": plan.starts.isoformat() if plan.starts else None,
                "hours": plan.hours,
                "fee": plan.fee,
                "currency": plan.currency,
                "over_on_demand": found.over_on_demand(plan),
                "zones": plan.zones,
            }
            for plan in found.plans
        ],
    }


def picture(found: Search) -> Iterator[str | Table]:
    """The plans for people; one line where there are none."""
    asked = f"training plans for {found.nodes} × {found.instance_type}, {found.hours:,} h"
    if found.why_none:
        yield f"{asked}: {found.why_none}"
        return
    yield f"{asked}, on offer now (train.training_plan takes the ARN of one that was bought):"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for head in ("starts", "hours", "to pay ahead", "÷ on demand", "zones", "offering"):
        table.add_column(head, justify="right" if head in ("hours", "to pay ahead") else "left")
    for plan in found.plans:
        ratio = found.over_on_demand(plan)
        table.add_row(
            f"{plan.starts:%Y-%m-%d %H:%M}" if plan.starts else "",
            f"{plan.hours:,.0f}",
            "" if plan.fee is None else f"{plan.fee:,.0f} {plan.currency}",
            "" if ratio is None else f"{ratio:.2f}",
            ", ".join(plan.zones),
            plan.offering,
        )
    yield table
