"""The table of cases, and what the jobs of all of them may cost.

A case is a function that gets a :class:`Run`; its name is the case's, and its docstring says what
it is about. Only jobs cost money worth naming: each declares how many it starts
at most, e.g. where nothing is cached and all is tried again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.parity.recording import Run
from trainyard.plan.prices import Kind, load

PRICED = "us-east-1"
"""The region whose prices are used where the table lacks a region's; it has all of them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A job's only instance, and the seconds after which it is stopped."""

    instance_type: str
    seconds: int
    price: Kind


MACHINES = {
    "processing": Machine("ml.t3.medium", 900, "processing"),
    "training": Machine("ml.m5.large", 900, "training"),
    "transform": Machine("ml.m5.large", 1800, "processing"),  # AWS asks the same price for both
}


@dataclass(frozen=True, slots=True)
class Case:
    run: Callable[[Run], None]
    jobs: dict[str, int]
    """Kind of job → the most that it may start."""


CASES: dict[str, Case] = {}


def case(**jobs: int) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register the function as a case that starts at most these jobs."""

    def register(function: Callable[[Run], None]) -> Callable[[Run], None]:
        CASES[function.__name__] = Case(function, jobs)
        return function

    return register


def jobs(names: list[str]) -> dict[str, int]:
    """Return kind of job → number of jobs in these cases."""
    counts = {kind: sum(CASES[name].jobs.get(kind, 0) for name in names) for kind in MACHINES}
    return {kind: count for kind, count in counts.items() if count}


def costs(region: str, names: list[str]) -> str:
    """Return a sentence about the jobs of these cases, and their highest possible cost."""
    most, told, elsewhere = 0.0, [], False
    for kind, count in jobs(names).items():
        machine = MACHINES[kind]
        own = load(region).hourly(machine.price, machine.instance_type)
        price = own or load(PRICED).hourly(machine.price, machine.instance_type)
        most += count * machine.seconds / 3600 * (price.usd if price else 0)
        elsewhere |= own is None
        longest = f"at most {machine.seconds // 60} minutes each"
        told.append(f"{count} {kind} on {machine.instance_type} ({longest})")
    where = f" at prices of {PRICED}, for want of {region}'s" if elsewhere else ""
    return f"jobs: {', '.join(told) or 'none'}; at most ${most:.2f}{where}"
