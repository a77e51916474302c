"""WarmStartConfig: the allowed parents, and the results used from them.

The rules are those of the developer guide, "Run a Warm Start Hyperparameter Tuning Job". AWS does
not publish how it uses the parents' results. Here, with IdenticalDataAndAlgorithm, Bayesian treats
them as its own; with TransferLearning, whose values are not comparable, the parents' best
combinations are tried first. Random, Grid and Hyperband do not use them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.emulator.tuning.search_space import Space, Values, within
from trainyard.emulator.tuning.search_strategies import Trial
from trainyard.emulator.tuning.trial_jobs import OBJECTIVE
from trainyard.emulator.tuning.tuning_request import (
    CONFIG,
    definitions,
    invalid,
    objective_of,
    ranges_of,
)
from trainyard.emulator.tuning.tuning_results import Result, ranked

PARENTS, CHANGES = 5, 10
FIRST = 3
"""Number of each parent's best combinations that are tried first with TransferLearning."""
IDENTICAL, TRANSFER = "IdenticalDataAndAlgorithm", "TransferLearning"
_ENDED = ("Completed", "Failed", "Stopped")


def parents_of(request: Mapping[str, Any]) -> list[str]:
    """Return the names of a request's parents."""
    found = (request.get("WarmStartConfig") or {}).get("ParentHyperParameterTuningJobs") or ()
    return [parent["HyperParameterTuningJobName"] for parent in found]


def check_warm_start(request: Mapping[str, Any], parents: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse parents that do not fit.

    Args:
        parents: name → Describe's answer.

    Raises:
        ApiError: the first broken rule.
    """
    config = request.get("WarmStartConfig")
    if not config:
        return
    if config.get("WarmStartType") not in (IDENTICAL, TRANSFER):
        raise invalid(
            f"WarmStartConfig.WarmStartType {config.get('WarmStartType')!r}: expected {IDENTICAL} "
            f"or {TRANSFER}"
        )
    if not 1 <= len(parents) <= PARENTS:
        raise invalid(f"WarmStartConfig has {len(parents)} parents, expected 1..{PARENTS}")
    for name, parent in parents.items():
        for fault in _faults(request, parent, config["WarmStartType"]):
            raise invalid(f"WarmStartConfig, parent {name}: {fault}")


def _faults(request: Mapping[str, Any], parent: Mapping[str, Any], kind: str) -> Iterator[str]:
    status = parent["HyperParameterTuningJobStatus"]
    if status not in _ENDED:
        yield f"it is {status}, expected a tuning job that has ended"
    ours, theirs = definitions(request), definitions(parent)
    if len(ours) > 1 or len(theirs) > 1:
        yield "several TrainingJobDefinitions are not warm-started by this emulator"
        return
    one, other = ours[0], theirs[0]
    if objective_of(request, one) != objective_of(parent, other):
        yield (
            f"its objective is {objective_of(parent, other)}, expected the same, "
            f"{objective_of(request, one)}"
        )
    yield from _of_names(_kinds(request, one), _kinds(parent, other))
    if kind == IDENTICAL:
        images = [d["AlgorithmSpecification"].get("TrainingImage") for d in (one, other)]
        data = [d.get("InputDataConfig") for d in (one, other)]
        for what, (here, there) in {"TrainingImage": images, "InputDataConfig": data}.items():
            if here != there:
                yield f"{what} differs: {kind} requires the same; use {TRANSFER}"


def _of_names(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    """Compare ``ours`` and ``theirs``: hyperparameter → its kind, or ``=value`` for a static
    one.
    """
    if len(ours) != len(theirs):
        yield f"it has {len(theirs)} static and tuned hyperparameters, expected {len(ours)}"
    changes = 0
    for name in sorted({*ours, *theirs}):
        one, other = ours.get(name, "="), theirs.get(name, "=")
        static = one.startswith("="), other.startswith("=")
        if one != other and not any(static):
            yield f"{name} is {other} there and {one} here: a type may not change"
        changes += 2 if all(static) and one != other else static[0] != static[1]
    if changes > CHANGES:
        yield f"{changes} changes from tuned to static, or of static values: at most {CHANGES}"


def _kinds(request: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, str]:
    ranges = ranges_of(request, definition)
    static = definition.get("StaticHyperParameters") or {}
    return {name: f"={value}" for name, value in static.items() if name != OBJECTIVE} | {
        item["Name"]: kind.removesuffix("ParameterRanges")
        for kind, items in ranges.items()
        for item in items or ()
    }


def learned(
    request: Mapping[str, Any], space: Space, results: Sequence[Result]
) -> tuple[list[Trial], list[Values]]:
    """Return (results to search on, combinations to try first) from the parents' training jobs."""
    usable = [result for result in ranked(results) if within(space, result.values)]
    if not usable or request[CONFIG]["Strategy"] != "Bayesian":
        return [], []
    if request["WarmStartConfig"]["WarmStartType"] == IDENTICAL:
        return [Trial(result.values, result.objective) for result in usable], []
    first: list[Values] = []
    for parent in sorted({result.tuning for result in usable}):
        best = [result.values for result in usable if result.tuning == parent][:FIRST]
        first += [values for values in best if values not in first]
    return [], first
