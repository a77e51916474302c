"""Environments of a recipe: what differs between the accounts that one recipe is deployed to.

An environment is laid over the recipe as the recipe is over the one that it extends, before
anything is typed. It may change where a pipeline runs, on which machines, at what cost, and what
its model must show, but nothing that makes the model: the same model is built once.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from pipelines.recipe.aws_account import SOURCES
from pipelines.recipe.config import Images, Recipe
from pipelines.recipe.deploy_section import Deploy
from pipelines.recipe.extended_recipe import Tree, over
from pipelines.recipe.monitor_section import Monitor
from pipelines.recipe.promotion_section import Promotion
from steps.config import ProcessingCompute
from steps.evaluate.config import EvaluateConfig
from steps.register.config import RegisterConfig
from steps.shard.config import ShardConfig
from steps.train.config import TrainStepConfig
from steps.transform.config import TransformConfig
from trainyard.common.errors import RecipeError, nearest

FIELD = "environments"
WHOLE = ("pipeline", "aws", "packages", "gate", "budget", "cache", "retry")
"""Sections of which an environment may change every field."""

_PROCESSING = tuple(ProcessingCompute.model_fields)
PARTS = {
    "images": (Images, ("registry",)),
    "shard": (ShardConfig, _PROCESSING),
    "train": (
        TrainStepConfig,
        (
            *("instance_type", "fallback_instance_types", "training_plan", "instance_count"),
            *("processes_per_node", "volume_gb", "max_runtime_minutes", "spot"),
            *("max_wait_minutes", "keep_alive_minutes", "input_mode", "fsx", "file_systems"),
        ),
    ),
    "evaluate": (EvaluateConfig, _PROCESSING),
    "transform": (TransformConfig, ("input", *_PROCESSING)),
    "deploy": (Deploy, tuple(Deploy.model_fields)),
    "monitor": (Monitor, tuple(Monitor.model_fields)),
    "promotion": (Promotion, tuple(Promotion.model_fields)),
    "register": (RegisterConfig, ("model_package_group", "approval", "inference_instances")),
}
"""Section → (its type, the fields of it that an environment may change)."""
Environments = Mapping[str, Tree]


def take(tree: Tree) -> dict[str, Tree]:
    """Remove the environments from a recipe's tree, and return name → what each changes.

    Raises:
        RecipeError: one is not a mapping, or changes what makes the model.
    """
    found = tree.pop(FIELD, None)
    if found is None:
        return {}
    if not isinstance(found, dict) or not found:
        raise RecipeError(f"{FIELD}: is {found!r:.200}; expected name: {{section: {{field: …}}}}")
    known = {name: {} if fields is None else fields for name, fields in found.items()}
    for name, fields in known.items():
        if not isinstance(fields, dict):
            raise RecipeError(f"{FIELD}.{name}: is {fields!r:.200}; expected sections of a recipe")
    refused = [f"{FIELD}.{n}.{line}" for n, fields in known.items() for line in _refused(fields)]
    if refused:
        raise RecipeError("\n".join(refused))
    return known


def _refused(fields: Tree) -> Iterator[str]:
    """Yield a line for each field that makes the model; unknown ones are found by the types."""
    why = "is the same in every environment, since the same model is built once"
    fix = "say it outside of environments, or in another recipe, by extends"
    sections = {field.alias or name for name, field in Recipe.model_fields.items()}
    for section, value in fields.items():
        if section in PARTS and isinstance(value, dict):
            kind, own = PARTS[section]
            for field in value:
                if field not in own and field in kind.model_fields:
                    yield f"{section}.{field}: {why}: {fix}; {nearest(field, list(own))}"
        elif section in sections and section not in (*WHOLE, *PARTS):
            yield f"{section}: {why}: {fix}; {nearest(section, [*WHOLE, *PARTS])}"


def merged(tree: Tree, known: Environments, name: str | None) -> Tree:
    """Return a copy of the recipe's tree with the environment laid over it.

    Raises:
        RecipeError: the recipe has no environment of that name.
    """
    if name is None:
        return deepcopy(tree)
    if not known:
        raise RecipeError(f"--env {name}: this recipe has no environments; leave it out")
    if name not in known:
        raise RecipeError(f"--env {name}: is not one of its environments; "
                          f"{nearest(name, list(known))}")  # fmt: skip
    return deepcopy(over(tree, known[name]))


def placed(tree: Tree, name: str | None) -> Tree:
    """Return an overlay's tree with what the environment may change placed in the environment."""
    if name is None:
        return tree
    own: Tree = {section: value for section, value in tree.items() if section in WHOLE}
    for section, (_, names) in PARTS.items():
        if inside := {field: v for field, v in tree.get(section, {}).items() if field in names}:
            own[section] = inside
    rest = {
        section: {k: v for k, v in value.items() if k not in own.get(section, {})}
        if section in PARTS
        else value
        for section, value in tree.items()
        if section not in WHOLE
    }
    return {section: value for section, value in rest.items() if value} | {FIELD: {name: own}}


def refuse(
    tree: Tree, known: Environments, name: str | None, chosen: Tree, check: Callable[[Tree], Any]
) -> None:
    """Check the chosen environment, and every other one as the file has it.

    Args:
        chosen: the tree of environment ``name``, with the overrides of the command line.
        check: raises a RecipeError with one line per problem.

    Raises:
        RecipeError: problems of any of them; or the recipe needs an environment, and has none.
    """
    if FIELD in chosen:
        raise RecipeError(f"--set {FIELD}.…: cannot be set; give --env NAME and --set the field")
    mine = _lines(check, chosen)
    others = {other: _lines(check, over(tree, known[other])) for other in known if other != name}
    own = [
        _said(line, other, known[other])
        for other, lines in others.items()
        for line in lines
        if line not in mine
    ]
    if name is not None:
        mine = [_said(line, name, known[name], chosen=True) for line in mine]
    else:
        lacking = [] if own else [*mine, *_lacking(chosen, known)][:1]
        ask = f"which environment? give --env {' or '.join(known)}: without one, "
        everywhere = [line for line in mine if all(line in lines for lines in others.values())]
        mine = everywhere or [ask + line for line in lacking]
    if mine or own:
        raise RecipeError("\n".join(mine + own))


def _lines(check: Callable[[Tree], Any], tree: Tree) -> list[str]:
    try:
        check(tree)
    except RecipeError as error:
        return str(error).split("\n")
    return []


def _lacking(tree: Tree, known: Environments) -> list[str]:
    """Return a line for each place (region, role, bucket) that only environments name."""
    named = {field for fields in known.values() for field in _aws(fields)}
    there = _aws(tree)
    return [f"aws.{f}: is missing" for f in SOURCES if f in named and there.get(f) is None]


def _aws(tree: Tree) -> Tree:
    section = tree.get("aws")
    return section if isinstance(section, dict) else {}


def _said(line: str, name: str, fields: Tree, *, chosen: bool = False) -> str:
    """Return a problem's line with the environment's name: before the field, if it stands there."""
    inside: Any = fields
    for part in line.partition(": ")[0].split("."):
        if not isinstance(inside, dict):
            break
        if part not in inside:
            return line if chosen else f"{FIELD}.{name}: {line}"
        inside = inside[part]
    return f"{FIELD}.{name}.{line}"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the field; it refers to the definitions of a recipe's schema."""
    sections = {field.alias or name: field for name, field in Recipe.model_fields.items()}
    kinds: dict[str, Any] = {name: (sections[name].annotation, None) for name in WHOLE} | PARTS
    properties = {
        name: {"$ref": f"#/$defs/{kind.__name__}"}
        if names is None and not any(f.is_required() for f in kind.model_fields.values())
        else {"type": "object", "description": sections[name].description,
              "additionalProperties": False, "properties": {
            field: {"$ref": f"#/$defs/{kind.__name__}/properties/{field}"}
            for field in names or kind.model_fields
        }}
        for name, (kind, names) in kinds.items()
    }  # fmt: skip
    return {
        "type": "object",
        "minProperties": 1,
        "description": "What differs between the accounts that the recipe is deployed to, by the "
        "environment's name, which --env chooses.",
        "additionalProperties": {
            "type": ["object", "null"],
            "properties": properties,
            "additionalProperties": False,
        },
    }
