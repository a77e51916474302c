"""WarmStartConfig: the allowed parents, and the results used from them.

The rules are those of the developer guide, "Run a Warm Start Hyperparameter Tuning Job". AWS does
not publish how it uses the parents' results. Here, with IdenticalDataAndAlgorithm, Bayesian treats
them as its own; with TransferLearning, whose values are not comparable, the parents' best
combinations are tried first. Random, Grid and Hyperband do not use them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.emulator.tuning.search_space import Space, Values, is_in_space
from trainyard.emulator.tuning.search_strategies import Trial
from trainyard.emulator.tuning.trial_jobs import OBJECTIVE
from trainyard.emulator.tuning.tuning_request import (
    CONFIG,
    definitions,
    invalid,
    objective_of,
    ranges_of,
)
from trainyard.emulator.tuning.tuning_results import Result, rank_results

PARENTS, CHANGES = 5, 10
FIRST = 3
"""Number of each parent's best combinations that are tried first with TransferLearning."""
IDENTICAL, TRANSFER = "IdenticalDataAndAlgorithm", "TransferLearning"
_END_STATUSES = ("Completed", "Failed", "Stopped")


def parents_of(request: Mapping[str, Any]) -> list[str]:
    """Return the names of a request's parents."""
    parents = (request.get("WarmStartConfig") or {}).get("ParentHyperParameterTuningJobs") or ()
    return [parent["HyperParameterTuningJobName"] for parent in parents]


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
    if status not in _END_STATUSES:
        yield f"it is {status}, expected a tuning job that has ended"
    own_definitions, parent_definitions = definitions(request), definitions(parent)
    if len(own_definitions) > 1 or len(parent_definitions) > 1:
        yield "several TrainingJobDefinitions are not warm-started by this emulator"
        return
    own_definition, other = own_definitions[0], parent_definitions[0]
    if objective_of(request, own_definition) != objective_of(parent, other):
        yield (
            f"its objective is {objective_of(parent, other)}, expected the same, "
            f"{objective_of(request, own_definition)}"
        )
    yield from _of_names(_kinds(request, own_definition), _kinds(parent, other))
    if kind == IDENTICAL:
        images = [d["AlgorithmSpecification"].get("TrainingImage") for d in (own_definition, other)]
        data = [d.get("InputDataConfig") for d in (own_definition, other)]
        for member, (own_value, parent_value) in {
            "TrainingImage": images,
            "InputDataConfig": data,
        }.items():
            if own_value != parent_value:
                yield f"{member} differs: {kind} requires the same; use {TRANSFER}"


def _of_names(own_kinds: Mapping[str, str], parent_kinds: Mapping[str, str]) -> Iterator[str]:
    """Compare ``own_kinds`` and ``parent_kinds``: hyperparameter → its kind, or ``=value`` for a
    static one.
    """
    if len(own_kinds) != len(parent_kinds):
        yield (
            f"it has {len(parent_kinds)} static and tuned hyperparameters, expected "
            f"{len(own_kinds)}"
        )
    changes = 0
    for name in sorted({*own_kinds, *parent_kinds}):
        own_kind, other = own_kinds.get(name, "="), parent_kinds.get(name, "=")
        static = own_kind.startswith("="), other.startswith("=")
        if own_kind != other and not any(static):
            yield f"{name} is {other} there and {own_kind} here: a type may not change"
        changes += 2 if all(static) and own_kind != other else static[0] != static[1]
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


def reuse_results(
    request: Mapping[str, Any], space: Space, results: Sequence[Result]
) -> tuple[list[Trial], list[Values]]:
    """Return (results to search on, combinations to try first) from the parents' training jobs."""
    usable = [result for result in rank_results(results) if is_in_space(space, result.values)]
    if not usable or request[CONFIG]["Strategy"] != "Bayesian":
        return [], []
    if request["WarmStartConfig"]["WarmStartType"] == IDENTICAL:
        return [Trial(result.values, result.objective) for result in usable], []
    first: list[Values] = []
    for parent in sorted({result.tuning for result in usable}):
        best = [result.values for result in usable if result.tuning == parent][:FIRST]
        first += [values for values in best if values not in first]
    return [], first
