"""A training definition, read: what is searched, which way is better, and what stops its jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.tuning.request import CONFIG, objective_of, ranges_of, resources
from trainyard.emulator.tuning.space import Space, space_of
from trainyard.emulator.tuning.stopping import Hyperband, Median, Rule


@dataclass(frozen=True, slots=True)
class Defined:
    """One of TrainingJobDefinition and TrainingJobDefinitions."""

    document: dict[str, Any]
    name: str
    space: Space
    minimize: bool
    rule: Rule | None


def read(request: Mapping[str, Any], definition: dict[str, Any]) -> Defined:
    """One definition of a request that has been checked."""
    config = request[CONFIG]
    minimize = objective_of(request, definition)["Type"] == "Minimize"
    rule: Rule | None = None
    if config["Strategy"] == "Hyperband":
        rule = Hyperband(minimize, *resources(config, definition))
    elif config.get("TrainingJobEarlyStoppingType") == "Auto":
        rule = Median(minimize)
    space = space_of(ranges_of(request, definition))
    return Defined(definition, definition.get("DefinitionName", ""), space, minimize, rule)
