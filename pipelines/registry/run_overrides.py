"""List how an execution deviates from its pipeline's recipe, to show it before its model is
approved.

A person who may start an execution chooses its parameters and champion, and must not be able to
pass the gate that way. So the model of such an execution is approved only if a reason is given.
This is a separate module because the console and approvals use it without the verification.
"""

from collections.abc import Iterator
from typing import Any

from conditions.no_champion import NONE
from pipelines.delivery.fallback_instance_types import TYPE, list_fallbacks
from pipelines.registry.ledger import AUTOMATIC_PARAMETERS
from pipelines.registry.package_evidence import Evidence
from trainyard.plan.definition_diff import flatten_fields

PLACES = "aws."
"""Prefix of the recipe's settings that say where the pipeline runs, not what it does: CI sets them
at every upsert.
"""


def list_overrides(evidence: Evidence, champion: str | None, recipe: Any = None) -> list[str]:
    """Return one line per deviation of the execution from its pipeline's recipe.

    Args:
        champion: the group's current champion; None if there is none.
        recipe: the approver's own recipe, resolved; None to use only the recorded one.
    """
    lines = [*_iter_parameter_changes(evidence)]
    for override in evidence.provenance["recipe"]["overrides"]:
        if not override.startswith(PLACES):
            lines.append(f"the pipeline was upserted with --set {override}")
    if champion is not None and evidence.parameters.get("ChampionArn") == NONE:
        lines.append(f"it was compared with no champion, although {champion} is Approved")
    return lines + [*(_iter_recipe_changes(evidence.recipe, recipe) if recipe is not None else ())]


def _iter_parameter_changes(evidence: Evidence) -> Iterator[str]:
    """Yield a line for each changed parameter, except an instance type among the fallbacks."""
    used, defaults = evidence.parameters, evidence.defaults
    for name in evidence.start_parameters:
        # What ``start`` sets is no deviation: an approval compares it with registry and ledger.
        if name in AUTOMATIC_PARAMETERS or used[name] == defaults[name]:
            continue
        if name != TYPE or used[name] not in list_fallbacks(evidence.recipe):
            yield f"parameter {name} was {used[name]}, the pipeline's default is {defaults[name]}"


def _iter_recipe_changes(recorded_recipe: Any, own_recipe: Any) -> Iterator[str]:
    """Yield the differences between two resolved recipes, field by field."""
    recorded_fields, own_recipe = flatten_fields(recorded_recipe), flatten_fields(own_recipe)
    for field in sorted({*recorded_fields, *own_recipe}):
        was, now = recorded_fields.get(field), own_recipe.get(field)
        if not field.startswith(PLACES) and (was and was.raw) != (now and now.raw):
            yield f"recipe {field} was {was and was.text}, yours is {now and now.text}"
