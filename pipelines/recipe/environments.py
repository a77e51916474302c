"""Environments of a recipe: what differs between the accounts to which one recipe is deployed.

An environment overrides fields of the recipe, as a recipe overrides fields of the one that it
extends, before anything is typed. It may change where a pipeline runs, on which machines, at what
cost, and what its model must achieve. It may change nothing that affects the model itself, because
the same model is built once for all environments.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from botocore.session import Session

from pipelines.recipe.config import Images, Recipe
from pipelines.recipe.extended_recipe import Tree, overlay_tree
from pipelines.recipe.sections import (
    Aws,
    Deploy,
    Monitor,
    Promotion,
    explain_other_account,
    parse_account,
)
from steps.config import ProcessingCompute
from steps.evaluate.config import EvaluateConfig
from steps.register.config import RegisterConfig
from steps.shard.config import ShardConfig
from steps.train.config import TrainStepConfig
from steps.transform.config import TransformConfig
from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import PlanError, RecipeError, suggest_nearest
from trainyard.validate.rules.images import ACCOUNTS

FIELD = "environments"
WHOLE_SECTIONS = ("pipeline", "aws", "packages", "gate", "budget", "cache", "retry")
"""Sections in which an environment may change every field."""

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
"""Each section's type, and the fields in it that an environment may change."""
Environments = Mapping[str, Tree]


def pop_environments(tree: Tree) -> dict[str, Tree]:
    """Remove the environments from a recipe's tree; return the fields that each one changes, by
    the environment's name.

    Raises:
        RecipeError: an environment is not a mapping, or changes something that affects the model.
    """
    section = tree.pop(FIELD, None)
    if section is None:
        return {}
    if not isinstance(section, dict) or not section:
        raise RecipeError(f"{FIELD}: is {section!r:.200}; expected name: {{section: {{field: …}}}}")
    environment_trees = {name: {} if fields is None else fields for name, fields in section.items()}
    for name, fields in environment_trees.items():
        if not isinstance(fields, dict):
            raise RecipeError(f"{FIELD}.{name}: is {fields!r:.200}; expected sections of a recipe")
    refusals = [
        f"{FIELD}.{n}.{line}"
        for n, fields in environment_trees.items()
        for line in _find_refusals(fields)
    ]
    if refusals:
        raise RecipeError("\n".join(refusals))
    return environment_trees


def _find_refusals(fields: Tree) -> Iterator[str]:
    """Yield a message for each field that affects the model, except unknown fields."""
    reason = "is the same in every environment, since the same model is built once"
    fix = "set it outside environments, or in another recipe that extends this one"
    sections = {field.alias or name for name, field in Recipe.model_fields.items()}
    for section, value in fields.items():
        if section in PARTS and isinstance(value, dict):
            kind, own_fields = PARTS[section]
            for field in value:
                if field not in own_fields and field in kind.model_fields:
                    yield (
                        f"{section}.{field}: {reason}: {fix}; "
                        f"{suggest_nearest(field, list(own_fields))}"
                    )
        elif section in sections and section not in (*WHOLE_SECTIONS, *PARTS):
            yield (
                f"{section}: {reason}: {fix}; {suggest_nearest(section, [*WHOLE_SECTIONS, *PARTS])}"
            )


def merge_environment(tree: Tree, environment_trees: Environments, name: str | None) -> Tree:
    """Return a copy of the recipe's tree with the environment's fields merged into it.

    Raises:
        RecipeError: the recipe has no environment of that name.
    """
    if name is None:
        return deepcopy(tree)
    if not environment_trees:
        raise RecipeError(f"--env {name}: this recipe has no environments; leave it out")
    if name not in environment_trees:
        raise RecipeError(f"--env {name}: the recipe has no such environment; "
                          f"{suggest_nearest(name, list(environment_trees))}")  # fmt: skip
    return deepcopy(overlay_tree(tree, environment_trees[name]))


def move_to_environment(tree: Tree, name: str | None) -> Tree:
    """Return an overlay's tree with the fields that may differ by environment, such as the role and
    the buckets, moved into ``environments.name``. Without a name the tree stays as it is.
    """
    if name is None:
        return tree
    own_sections: Tree = {
        section: value for section, value in tree.items() if section in WHOLE_SECTIONS
    }
    for section, (_, names) in PARTS.items():
        if own_fields := {field: v for field, v in tree.get(section, {}).items() if field in names}:
            own_sections[section] = own_fields
    other_sections = {
        section: {k: v for k, v in value.items() if k not in own_sections.get(section, {})}
        if section in PARTS
        else value
        for section, value in tree.items()
        if section not in WHOLE_SECTIONS
    }
    return {section: value for section, value in other_sections.items() if value} | {
        FIELD: {name: own_sections}
    }


def refuse_faulty_environments(
    tree: Tree,
    environment_trees: Environments,
    name: str | None,
    chosen_tree: Tree,
    check: Callable[[Tree], Any],
) -> None:
    """Check the chosen environment, and every other one as it is in the file.

    Args:
        name: the chosen environment, or None.
        chosen_tree: the tree of that environment, with the overrides of the command line.
        check: raises a RecipeError with one line per problem.

    Raises:
        RecipeError: any environment has problems, or the recipe needs an environment and none is
            chosen.
    """
    if FIELD in chosen_tree:
        raise RecipeError(f"--set {FIELD}.…: cannot be set; give --env NAME and --set the field")
    chosen_lines = _list_error_lines(check, chosen_tree)
    others = {
        other: _list_error_lines(check, overlay_tree(tree, environment_trees[other]))
        for other in environment_trees
        if other != name
    }
    other_lines = [
        _add_environment_name(line, other, environment_trees[other])
        for other, lines in others.items()
        for line in lines
        # A problem that the chosen environment has, too, is reported once.
        if line not in chosen_lines
    ]
    if name is not None:
        chosen_lines = [
            _add_environment_name(line, name, environment_trees[name], is_chosen=True)
            for line in chosen_lines
        ]
    else:
        missing_lines = (
            []
            if other_lines
            else [*chosen_lines, *_list_missing_places(chosen_tree, environment_trees)]
        )
        question = f"which environment? give --env {' or '.join(environment_trees)}: without one, "
        # If no environment is chosen, only a problem that all of them have is certainly a problem.
        common_lines = [
            line for line in chosen_lines if all(line in lines for lines in others.values())
        ]
        chosen_lines = common_lines or [question + line for line in missing_lines[:1]]
    if chosen_lines or other_lines:
        raise RecipeError("\n".join(chosen_lines + other_lines))


def _list_error_lines(check: Callable[[Tree], Any], tree: Tree) -> list[str]:
    """Return the lines of the RecipeError that ``check`` raises; [] if it raises none."""
    try:
        check(tree)
    except RecipeError as error:
        return str(error).split("\n")
    return []


def _list_missing_places(tree: Tree, environment_trees: Environments) -> list[str]:
    """Return a line for each of region, role and bucket that only environments set."""
    aws_fields = {
        field for fields in environment_trees.values() for field in _find_aws_section(fields)
    }
    section = _find_aws_section(tree)
    return [f"aws.{f}: is missing" for f in SOURCES if f in aws_fields and section.get(f) is None]


def _find_aws_section(tree: Tree) -> Tree:
    section = tree.get("aws")
    return section if isinstance(section, dict) else {}


def _add_environment_name(line: str, name: str, fields: Tree, *, is_chosen: bool = False) -> str:
    """Return a problem's line with the environment's name, as part of the field's path if the
    environment sets the field.
    """
    section: Any = fields
    for part in line.partition(": ")[0].split("."):
        if not isinstance(section, dict):
            break
        if part not in section:
            return line if is_chosen else f"{FIELD}.{name}: {line}"
        section = section[part]
    return f"{FIELD}.{name}.{line}"


def build_environments_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``environments``, with references to a recipe's schema."""
    sections = {field.alias or name: field for name, field in Recipe.model_fields.items()}
    kinds: dict[str, Any] = {
        name: (sections[name].annotation, None) for name in WHOLE_SECTIONS
    } | PARTS
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


# Region, roles and bucket, from the recipe or else from the standard environment variables; and the
# account of the caller.

SOURCES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "role": ("SAGEMAKER_PIPELINE_ROLE_ARN",),
    "bucket": ("ARTIFACT_BUCKET",),
}
JOB_ROLE = "SAGEMAKER_JOB_ROLE_ARN"


@dataclass(frozen=True, slots=True)
class Account:
    """AWS account settings for which a pipeline is built."""

    region: str
    role: str
    bucket: str
    job_role: str


def resolve_account(aws: Aws) -> Account:
    """Return the account settings from the recipe, or else from environment variables.

    Raises:
        RecipeError: a value is missing in both (names field and variables), the region is invalid,
            or a role is of another account.
    """
    # The recipe comes first: a variable that happens to be set in someone's shell must not change
    # the definition.
    values = {field: getattr(aws, field) or _read_variable(field) for field in SOURCES}
    if refusal := explain_unfit_region(values["region"]):
        raise RecipeError(f"aws.region: is {values['region']!r}; {refusal}")
    # Without a job role, the pipeline's is used for both: JOB_ROLE is not combined with a recipe's
    # role.
    job_role = aws.job_role or (None if aws.role else os.environ.get(JOB_ROLE))
    account = Account(**values, job_role=job_role or values["role"])
    refusal = explain_other_account(
        aws.account, {"role": account.role, "job_role": account.job_role}
    )
    if refusal:
        raise RecipeError(refusal)
    return account


def explain_unfit_region(name: str) -> str | None:
    """Return a message with the nearest region; None if SageMaker has a region ``name``."""
    regions = _list_regions()
    return (
        None
        if name in regions
        else f"no such region of SageMaker; {suggest_nearest(name, regions)}"
    )


@cache
def _list_regions() -> list[str]:
    """Return SageMaker's regions, from botocore's table and that of AWS's images."""
    session = Session()
    partitions = session.get_available_partitions()
    region_lists = (session.get_available_regions("sagemaker", name) for name in partitions)
    return sorted({*chain.from_iterable(region_lists), *ACCOUNTS})


def find_account(aws: Aws, environment: str | None) -> str | None:
    """Return the account that a recipe is for: ``aws.account``, or with an environment, that of the
    role. Return None if any account will do.
    """
    return aws.account or (parse_account(aws.role) if environment and aws.role else None)


def refuse_other_caller(account: str | None, region: str | None) -> None:
    """Check that the credentials belong to ``account``, before any change; None allows any account.

    Raises:
        PlanError: the credentials belong to another account; names both.
    """
    if account is None:
        return
    with service_errors(f"checking whether these credentials belong to account {account}"):
        caller = create_client("sts", region).get_caller_identity()
    if caller["Account"] != account:
        raise PlanError(
            f"aws.account: the recipe is for account {account}, but these credentials belong to "
            f"{caller['Account']} ({caller['Arn']}); log in to {account}, or choose another "
            "environment with --env. Nothing was changed"
        )


def _read_variable(field: str) -> str:
    """Return the first set variable for the field; raise RecipeError if none is set."""
    for variable in SOURCES[field]:
        if value := os.environ.get(variable):
            return value
    raise RecipeError(
        f"aws.{field}: is set neither in the recipe nor in the environment; add it to the recipe, "
        f"or set {' or '.join(SOURCES[field])}"
    )
