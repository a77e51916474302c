"""Read a recipe: YAML, what it extends, its environment, ``--set`` overrides, and types.

An error names each wrong field, where it was written, and what is expected.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from itertools import chain, islice, product
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from pipelines.recipe import environments, extended_recipe, field_relations
from pipelines.recipe.config import NAMES, REMARKS, Recipe
from pipelines.recipe.extended_recipe import StrictLoader, Tree, located_problems
from steps.train.config import TrainStepConfig
from steps.tune.config import Range, TuneConfig, Value
from steps.workload_settings import PREFIX, as_hyperparameters
from training.config import IMMATERIAL, TrainConfig
from training.workloads import load_spec
from trainyard import secrets
from trainyard.common.errors import RecipeError, TrainingError, suggest_nearest
from trainyard.read_yaml import DEEPEST, load_yaml

# Read a section with wrong fields as far as possible, so that everything else is checked, too.
#
# A field that is wrong or missing is absent from the object. A check that reads it raises an
# AttributeError, and so reports nothing until the field is right.

Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[str | int]


def read_partially(model: type[Model], value: Any, wrong: Sequence[Location]) -> Model:
    """Return an instance of ``model`` with the valid fields of ``value``; the others are absent.

    ``wrong``: locations in ``value`` where pydantic found an error.
    """
    section_object = model.model_construct()
    content = _prepare_content(model, value)
    meant_fields = _guess_fields(model, content)
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = [location[1:] for location in wrong if location[:1] == (key,)]
        section = _find_section_model(field.annotation)
        section_object.__dict__.pop(name, None)
        if key not in content:
            if not field.is_required() and name not in meant_fields:
                section_object.__dict__[name] = field.get_default(call_default_factory=True)
        elif section and isinstance(content[key], Mapping):
            section_object.__dict__[name] = read_partially(section, content[key], inner)
        elif not inner:
            with suppress(ValidationError):  # only a check of the section itself raises one here
                section_object.__dict__[name] = TypeAdapter(field.annotation).validate_python(
                    content[key]
                )
    others = {k: v for k, v in content.items() if k not in _list_field_names(model)}
    if model.model_config.get("extra") == "allow":
        wrong_names = {str(part) for location in wrong for part in location}
        extra = {name: v for name, v in others.items() if name not in wrong_names}
        # pydantic stores extra names like this, too: they are not fields.
        object.__setattr__(section_object, "__pydantic_extra__", extra)
    object.__setattr__(
        section_object, "__pydantic_fields_set__", {*content} & {*model.model_fields}
    )
    return section_object


def find_broken_rules(section: BaseModel, above: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield (location, message) of each failed check across the fields of a section and of its
    subsections.

    A check that reads an absent field is skipped.
    """
    section_copy = section.model_copy()
    for name, field in type(section).model_fields.items():
        inner = section.__dict__.get(name)
        if isinstance(inner, BaseModel) and name in section.model_fields_set:
            faults = [*find_broken_rules(inner, (*above, field.alias or name))]
            yield from faults
            if faults:  # the rules of the whole section rely on valid parts
                section_copy.__dict__.pop(name)
    for rule in type(section).__pydantic_decorators__.model_validators.values():
        if rule.info.mode != "after":
            continue
        try:
            rule.func(section_copy)
        except ValidationError:
            continue  # an error of another section, which is checked itself
        except ValueError as error:
            yield above, str(error)
        except AttributeError:
            continue


def _prepare_content(model: type[BaseModel], value: Any) -> Mapping[str, Any]:
    """Return the section's content after the model's own "before" validators."""
    for rule in model.__pydantic_decorators__.model_validators.values():
        if rule.info.mode == "before":
            with suppress(ValueError):
                value = rule.func(value)
    return value if isinstance(value, Mapping) else {}


def _guess_fields(model: type[BaseModel], content: Mapping[str, Any]) -> set[str]:
    """Return the fields that unknown names in the section may mean, by spelling or ``NAMES``."""
    names = [*_list_field_names(model)]
    unknown = [name for name in content if name not in names]
    close = (match for name in unknown for match in get_close_matches(name, names, cutoff=0.5))
    return {*close, *(NAMES[name] for name in unknown if name in NAMES)}


def _list_field_names(model: type[BaseModel]) -> set[str]:
    """Return the names of the model's fields, as they are written in a recipe."""
    return {field.alias or name for name, field in model.model_fields.items()}


def _find_section_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model of the section that the field is; None if it is not a section."""
    if get_origin(annotation) in (Union, UnionType):
        options = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _find_section_model(options[0]) if len(options) == 1 else None
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None


ABSENT = object()
"""Replaces a wrong value that another check has already reported."""


def load_recipe(
    path: Path, overrides: Sequence[str] = (), environment: str | None = None
) -> Recipe:
    """Return the recipe in ``path`` for an environment, with ``field.path=value`` overrides applied
    in order.

    Raises:
        RecipeError: the file is missing or not YAML, an override is malformed, the environment does
            not exist, or a field is unknown, missing or wrong, in any environment. It has one line
            per problem: where it was written, field path, value, what was expected.
    """
    tree = extended_recipe.read_extended_recipe(path)
    with located_problems(path, overrides, environment):
        environment_trees = environments.pop_environments(tree)
        chosen_tree = environments.merge_environment(tree, environment_trees, environment)
    for assignment in overrides:
        override_field(chosen_tree, assignment)
    _make_importable(path, chosen_tree)
    with located_problems(path, overrides, environment):
        if environment_trees:
            environments.refuse_faulty_environments(
                tree, environment_trees, environment, chosen_tree, _check_tree
            )
        return _check_tree(chosen_tree)


def _check_tree(tree: Tree) -> Recipe:
    """Return the tree as a recipe, after checking that its sections and its workload fit each
    other.

    Raises:
        RecipeError: has a line for each problem; a check that needs a wrong field is skipped.
    """
    problems, tree = _check_workload(tree)
    recipe, wrong = _read_section(Recipe, tree)
    problems += wrong
    for check in (_check_settings, field_relations.list_errors, _check_secrets):
        problems += check(recipe, partial=bool(problems))
    if not problems and recipe.tune is not None:
        problems += _iter_search_problems(recipe, tree)
    if problems:
        raise RecipeError("\n".join(dict.fromkeys(problems)))
    return recipe


def _check_workload(tree: Tree) -> tuple[list[str], Tree]:
    """Check that the workload exists; if not, return an error, and the tree without its name."""
    workload = tree.get("workload")
    if not isinstance(workload, dict) or not isinstance(name := workload.get("name"), str):
        return [], tree
    try:
        load_spec(name)
    except TrainingError as error:
        return [f"workload.name: {error}"], {**tree, "workload": {**workload, "name": ABSENT}}
    return [], tree


def _read_section(model: type[Model], value: Any, *where: str) -> tuple[Model, list[str]]:
    """Return (``value`` as a ``model``, its problems); with problems, the model has only valid
    fields.

    ``where``: path of ``value`` in the recipe.
    """
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        details = [detail for detail in error.errors() if detail["input"] is not ABSENT]
        locations = [detail["loc"] for detail in error.errors()]
    messages = FieldMessages(model, where, Recipe)
    partial = read_partially(model, value, locations)
    of_sections = [
        messages.format_section_message(location, text)
        for location, text in find_broken_rules(partial)
    ]
    return partial, [*messages.describe(details), *of_sections]


def _check_settings(recipe: Recipe, *, partial: bool) -> Iterator[str]:
    """Yield problems of the workload's settings, and of their fit with training and evaluation."""
    try:
        if recipe.data is None:
            return
        config, workload_settings = recipe.samples_spec.config, recipe.workload.config
    except AttributeError:
        if not partial:
            raise
        return
    settings, problems = _read_section(config, workload_settings, "workload", "config")
    yield from problems
    for check in (_iter_split_problems, _iter_slice_problems):
        try:
            yield from check(recipe, settings)
        except AttributeError:
            if not (partial or problems):
                raise


def _iter_split_problems(recipe: Recipe, settings: BaseModel) -> Iterator[str]:
    """Yield why the workload's model or sequences cannot be split as the training requires."""
    loop: TrainConfig | None = recipe.train.loop
    if loop is None:
        return
    stages, workload = loop.stages, recipe.workload.name
    if refusal := recipe.workload_spec.refuse_split(settings, loop.tensor_parallel, stages):
        field = "tensor_parallel" if loop.tensor_parallel > 1 else "pipeline_parallel"
        yield f"train.loop.{field}: is {getattr(loop, field)}; workload {workload}: {refusal}"
    if refusal := recipe.workload_spec.refuse_layout(settings, loop):
        yield f"train.loop: workload {workload}: {refusal}"


def _iter_slice_problems(recipe: Recipe, settings: BaseModel) -> Iterator[str]:
    """Yield slices of the evaluation that the workload does not have, or the shards do not keep."""
    if recipe.train.loop is None:
        return
    known_slices, kind = recipe.workload_spec.slices(settings), recipe.workload.name
    for name in recipe.evaluate.slices:
        if name not in known_slices:
            near = suggest_nearest(name, [*known_slices])
            yield f"evaluate.slices: {name!r} is not a slice of workload {kind}; {near}"
        data = recipe.data
        keeps_folders = recipe.shard.by_folder or (
            data is not None and (data.inputs or data.shards)
        )
        if name == recipe.workload_spec.get_input_slice(settings) and not keeps_folders:
            yield (
                f"evaluate.slices: {name!r} is the folder of an example's raw data, which the "
                "shards do not record; set shard.by_folder to true, or data.inputs"
            )


def _iter_search_problems(recipe: Recipe, tree: Tree) -> Iterator[str]:
    """Yield the first problem of the search: of its settings, or of a recipe with values at the
    ends of its ranges.
    """
    if refusal := explain_unfit_tune(recipe):
        yield refusal
        return
    for values, trial in iter_trial_recipes(recipe, tree):
        try:
            _check_tree(trial)
        except RecipeError as error:
            trial_text = ", ".join(f"{name} {value!r}" for name, value in values.items())
            yield f"tune.ranges: with {trial_text}: {error}"
            return


def _check_secrets(recipe: Recipe, *, partial: bool) -> Iterator[str]:
    """Yield values that look like secrets, before anything is printed or uploaded; messages name
    the field, not the value.
    """
    for secret_path in secrets.iter_secret_paths(
        recipe.model_dump(mode="json", by_alias=True, warnings=not partial)
    ):
        yield (
            f"{'.'.join(map(str, secret_path))}: looks like a secret, but everyone who may "
            "describe the pipeline or its jobs can read the recipe's values; store it in AWS "
            "Secrets Manager, give its ARN here, and read it in the job"
        )


def _make_importable(path: Path, tree: dict[str, Any]) -> None:
    """Put ``workload.source`` on Python's path: checks need the workload's spec."""
    workload = tree.get("workload")
    source = workload.get("source") if isinstance(workload, dict) else None
    if isinstance(source, str):
        sys.path.insert(0, str((path.parent / source).resolve()))


def override_field(tree: dict[str, Any], assignment: str) -> None:
    """Apply one ``field.path=value`` to a recipe's tree; the value is read as YAML.

    Raises:
        RecipeError: ``assignment`` does not have that form.
    """
    path, equals, text = assignment.partition("=")
    fields = path.split(".")
    if not equals or not all(fields) or len(fields) > DEEPEST:
        raise RecipeError(
            f"--set {assignment:.200}: must be field.path=value, e.g. gate.margin=0.1"
        )
    section = tree
    for depth, field in enumerate(fields[:-1]):
        section = section.setdefault(field, {})
        if not isinstance(section, dict):
            holder = ".".join(fields[: depth + 1])
            raise RecipeError(f"--set {assignment}: {holder} is a value, not a section")
    try:
        section[fields[-1]] = load_yaml(text, StrictLoader)
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())
        raise RecipeError(
            f"--set {assignment:.200}: the value is not YAML; quote it ({message})"
        ) from None


# Describe what is wrong with fields of a recipe: the value, what is expected, an example, the fix.
#
# All this is derived from the JSON Schema of the fields, including examples. So a new field needs
# nothing here, only ``Field(pattern=…, examples=[…])``, or a default, which is also an example.

LONGEST = 200
"""Maximum number of characters of a value in a message."""
FEW = 5  # maximum number of a section's field names in a message
PART = re.compile(r"[^A-Za-z0-9](?=[A-Za-z0-9])|[A-Za-z](?=\d)")
"""Where an example may be cut, to put its first part before a value."""
Schema = Mapping[str, Any]
BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "minProperties": "at least {} of them",
    "maxProperties": "at most {} of them",
}
"""Wording in a message for each JSON Schema keyword."""


class FieldMessages:
    """Messages about the fields of a model that is at ``location`` in the recipe.

    ``recipe_model``: the model of the whole recipe, to find where a misplaced field belongs.
    """

    def __init__(
        self, model: type[BaseModel], location: tuple[str, ...], recipe_model: type[BaseModel]
    ) -> None:
        self._schema, self._others, self._location = (
            _build_schema(model),
            _build_schema(recipe_model),
            location,
        )

    def describe(self, problems: Sequence[ErrorDetails]) -> list[str]:
        """Return a line ``field: problem`` for each of pydantic's problems with the model."""
        missing_fields: dict[tuple[str, ...], list[str]] = {}
        for problem in problems:
            if problem["type"] == "missing":
                path, _ = self._find_field(problem["loc"])
                missing_fields.setdefault(path[:-1], []).append(path[-1])
        unknown = [p for p in problems if p["type"] == "extra_forbidden"]
        lines = [self._describe_unknown(problem, missing_fields) for problem in unknown]
        # A missing field that an unknown name stands for is not also reported as missing.
        lines += [
            line
            for p in problems
            if p not in unknown
            for line in self._describe_problem(p, missing_fields)
        ]
        return [*dict.fromkeys(lines)]

    def _describe_problem(
        self, problem: ErrorDetails, missing_fields: Mapping[tuple, list[str]]
    ) -> Iterator[str]:
        """Yield the line of one of pydantic's problems; none if it is reported elsewhere."""
        path, node = self._find_field(problem["loc"])
        field = ".".join((*self._location, *path))
        if problem["type"] == "missing":
            if path[-1] in missing_fields.get(path[:-1], ()):
                value = as_yaml(make_example(node, self._schema))
                yield f"{field}: is missing; add it, such as {path[-1]}: {value}"
        elif problem["type"] != "value_error":
            yield f"{field}: is {shorten_repr(problem['input'])}; " + describe_expectation(
                node, problem["input"], self._schema
            )
        elif not isinstance(problem["ctx"]["error"], ValidationError):  # this has its own lines
            yield self.format_section_message(
                problem["loc"], problem["msg"].removeprefix("Value error, ")
            )

    def format_section_message(self, location: Sequence[str | int], message: str) -> str:
        """Return the line of a check across several fields of a section; its message may start with
        one of them.
        """
        path, node = self._find_field(location)
        field = ".".join((*self._location, *path))
        inner, colon, rest = message.partition(": ")
        if not field:  # a check of the whole recipe: its message names the field
            return message
        if colon and inner.partition(".")[0] in find_properties(node, self._schema):
            return f"{field}.{inner}: {rest}"
        return f"{field}: {message}"

    def _describe_unknown(
        self, problem: ErrorDetails, missing_fields: dict[tuple[str, ...], list[str]]
    ) -> str:
        """Return the line of an unknown field, with the field's name or location in a recipe."""
        path, node = self._find_field(problem["loc"], unknown=True)
        name, section = path[-1], path[:-1]
        names = [*find_properties(node, self._schema)]
        missing = missing_fields.get(section, [])
        usual_name = NAMES.get(name.lower().replace("-", "_"))
        close = get_close_matches(name, names, n=1, cutoff=0.75)
        if close:
            field_name, fix = close[0], f"nearest valid name: {close[0]}"
        elif usual_name in names:
            field_name, fix = usual_name, f"it is called {usual_name} here"
        elif elsewhere := self._find_field_paths(name) or (
            self._find_field_paths(usual_name) if usual_name else []
        ):
            field_name, fix = "", f"write {' or '.join(elsewhere)}"
        elif len(missing) == 1:
            field_name, fix = missing[0], f"expected {missing[0]}"
        else:
            field_name, fix = "", suggest_nearest(name, names)
        if field_name in missing:
            missing.remove(field_name)
            fix += ", which is missing"
        remark = REMARKS.get(name.lower().replace("-", "_"), "")
        field = ".".join((*self._location, *path))
        return f"{field}: unknown field (value {shorten_repr(problem['input'])}); {fix}{remark}"

    def _find_field_paths(self, name: str) -> list[str]:
        """Return the paths of the recipe's fields with this name; [] if there are more than two."""
        paths = [path for path in _iter_field_paths(self._others, self._others) if path[-1] == name]
        return [".".join(path) for path in paths] if len(paths) <= 2 else []  # noqa: PLR2004

    def _find_field(
        self, location: Sequence[str | int], *, unknown: bool = False
    ) -> tuple[tuple[str, ...], Schema]:
        """Return the path and schema of the field at pydantic's ``location``.

        pydantic's location may also contain the type of a union that it tried, which the path
        omits.
        """
        path: list[str] = []
        node: Schema = self._schema
        for part in location:
            inner = _find_member_schema(node, part, self._schema)
            if inner is not None:
                node = inner
                path.append(str(part))
        return (*path, str(location[-1])) if unknown else tuple(path), node


@cache
def _build_schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _list_options(node: Schema, root: Schema) -> list[Schema]:
    """Return the schemas that a value may have, except null, with references resolved."""
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _list_options({**root["$defs"][node["$ref"].rpartition("/")[2]], **rest}, root)
    if several := node.get("anyOf") or node.get("oneOf"):
        outer = {key: node[key] for key in ("examples", "default") if node.get(key) is not None}
        options = [alternative for option in several for alternative in _list_options(option, root)]
        return [
            {**outer, **alternative} for alternative in options if alternative.get("type") != "null"
        ]
    return [node]


def find_properties(node: Schema, root: Schema) -> Schema:
    """Return the schemas of a section's fields, by name; empty if ``node`` is not a section."""
    return {
        n: field_schema
        for o in _list_options(node, root)
        for n, field_schema in o.get("properties", {}).items()
    }


def _find_member_schema(node: Schema, part: str | int, root: Schema) -> Schema | None:
    """Return the schema of a field or item of a value with this schema; None if it has none."""
    for option in _list_options(node, root):
        if isinstance(part, int) and option.get("type") == "array":
            several = option.get("prefixItems", ())
            return several[part] if part < len(several) else option.get("items", {})
        if part in (fields := option.get("properties", {})):
            return fields[part]
        others = option.get("additionalProperties")
        # pydantic puts such words into a location, in addition to names of fields.
        is_tag = str(part).startswith(("__pydantic_extra__", "<", "["))
        if option.get("type") == "object" and isinstance(part, str) and not is_tag:
            if isinstance(others, Mapping):
                return others
            if others is True:
                return {}
    return None


def _iter_field_paths(
    node: Schema, root: Schema, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the path of each field in the schema, subsections included."""
    for name, inner in find_properties(node, root).items():
        yield (*above, name)
        yield from _iter_field_paths(inner, root, (*above, name))


def describe_expectation(node: Schema, value: Any, root: Schema) -> str:
    """Return ``expected …``, with the valid value nearest to ``value``, or else an example."""
    options = _list_options(node, root)
    words = dict.fromkeys(_describe_values(option, root) for option in options)
    if "a finite number" in words:
        words.pop("a whole number", None)
    text = f"expected {' or '.join(words)}"
    near = next(
        (match for option in options if (match := _find_nearest_value(option, value)) is not None),
        None,
    )
    if near is not None:
        return f"{text}; nearest valid value: {as_yaml(near)}"
    has_form = any("pattern" in option or "enum" in option for option in options)
    value_example = None if has_form else make_example(node, root)
    return text if value_example in (None, {}) else f"{text}, such as {as_yaml(value_example)}"


def _describe_values(option: Schema, root: Schema) -> str:
    """Describe in words the values that a schema allows."""
    limits = [words.format(option[key]) for key, words in BOUNDS.items() if key in option]
    bounds = f" ({', '.join(limits)})" if limits else ""
    if choices := option.get("enum", [option["const"]] if "const" in option else []):
        return f"one of {', '.join(map(as_yaml, choices))}" if len(choices) > 1 else str(choices[0])
    kind = option.get("type")
    if kind == "array":
        inner = " or ".join(
            _describe_values(alternative, root)
            for alternative in _list_options(option.get("items", {}), root)
        )
        return f"a list{bounds}, each {inner}" if inner else f"a list{bounds}"
    if kind == "object" and "properties" in option:
        return f"a section with fields such as {', '.join([*option['properties']][:FEW])}"
    kinds = {
        "boolean": "true or false",
        "integer": "a whole number",
        "number": "a finite number",
        "object": "a mapping of names to values",
        "string": f"text like {as_yaml(make_example(option, root))}"
        if "pattern" in option
        else "text",
    }
    return f"{kinds.get(str(kind), 'a value')}{bounds}"


def make_example(node: Schema, root: Schema) -> Any:
    """Return a valid value (example, default, or from the type); None if unknown."""
    for option in _list_options(node, root):
        if option.get("examples"):
            return option["examples"][0]
        if option.get("default") not in (None, {}, [], ""):
            return option["default"]
        derived_value = _derive_example(option, root)
        if derived_value is not None:
            return derived_value
    return None


def _derive_example(option: Schema, root: Schema) -> Any:
    """Return a valid value that follows from the type; None if there is none."""
    if choices := option.get("enum"):
        return choices[0]
    kind = option.get("type")
    if "const" in option or kind == "boolean":
        return option.get("const", True)
    if kind in ("integer", "number"):
        return _clamp_number(option, 1)
    if kind == "array":
        inner = make_example(option.get("items", {}), root)
        items = [make_example(item, root) for item in option.get("prefixItems", ())]
        return items or ([] if inner is None else [inner] * option.get("minItems", 1))
    if kind == "object":
        required_fields = {name: option["properties"][name] for name in option.get("required", ())}
        if not required_fields and isinstance(inner := option.get("additionalProperties"), Mapping):
            required_fields = {"name": inner}
        return {name: make_example(inner, root) for name, inner in required_fields.items()}
    return "text" if kind == "string" and "pattern" not in option else None


def _clamp_number(option: Schema, value: float) -> float:
    """Return the number within the bounds that is nearest to ``value``."""
    low = option.get("minimum", option.get("exclusiveMinimum"))
    high = option.get("maximum", option.get("exclusiveMaximum"))
    if "exclusiveMinimum" in option and value <= option["exclusiveMinimum"]:
        value = (low + high) / 2 if high is not None else low + 1
    if "exclusiveMaximum" in option and value >= option["exclusiveMaximum"]:
        value = (low + high) / 2 if low is not None else high - 1
    step = option.get("multipleOf", 1)
    value = max(value, low) if low is not None else value
    value = min(value, high) if high is not None else value
    # -(-a // b) rounds up, to a multiple that is not below the lower bound.
    return -(-value // step) * step if option.get("type") == "integer" else value


def _find_nearest_value(option: Schema, value: Any) -> Any:
    """Return the valid value that ``value`` probably means; None if there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if choices := option.get("enum"):
        close = get_close_matches(str(value), [*map(str, choices)], n=1, cutoff=0.5)
        close = close or [choice for choice in choices if str(choice).lower() == str(value).lower()]
        return next((choice for choice in choices if str(choice) in map(str, close)), None)
    if option.get("type") in ("integer", "number"):
        return _find_nearest_number(option, value)
    return _fit_pattern(option, str(value)) if "pattern" in option else None


def _find_nearest_number(option: Schema, value: str | float) -> float | None:
    """Return the valid number nearest to the number at the start of ``value``, or None."""
    if isinstance(value, str):  # 16 samples, 5e-4, 1,000
        begin = re.match(r"[-+]?\d[\d_,]*(\.\d+)?([eE][-+]?\d+)?", value.strip())
        if begin is None:
            return None
        value = float(re.sub("[_,]", "", begin[0]))
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 (NaN)
        return None
    low, high = option.get("exclusiveMinimum"), option.get("exclusiveMaximum")
    if (low is not None and value <= low) or (high is not None and value >= high):
        return None  # an open bound has no nearest number
    number = _clamp_number(option, value)
    return int(number) if number == int(number) and option.get("type") == "integer" else number


def _fit_pattern(option: Schema, value: str) -> str | None:
    """Return the value in the form that the pattern requires; None if no attempt fits.

    Attempts are: the value with the first part of an example before it (``ml.``, ``s3://``, an ARN
    up to the name), or without the characters that are not allowed.
    """
    text = value.strip().rstrip("/")
    plain = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
    if re.match(r"[a-z0-9]+://|arn:", text):  # try the name alone, if no URI or ARN is expected
        plain = re.split("[:/]", text)[-1]
    alone = [text, text.lower(), plain, plain.lower()]
    behind = [text, text.lower(), text.replace(".", "")]
    if ":" in text or not text[:1].isalnum():  # a URI or ARN of another kind
        behind = []
    examples = [*option.get("examples", ()), *filter(None, [option.get("default")])]
    beginnings = [
        sample[:end] for sample in examples for end in map(re.Match.end, PART.finditer(sample))
    ]
    for candidate in filter(None, [*alone, *(b + form for form in behind for b in beginnings)]):
        if re.search(option["pattern"], candidate):
            return candidate
    return None


def as_yaml(value: Any) -> str:
    """Return a value in YAML, as in a recipe, on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def shorten_repr(value: Any) -> str:
    """Return the ``repr`` of ``value``, shortened for a message."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


# The recipe's section ``tune``: check that it searches hyperparameters of this training.

BUDGET = {"max_steps": "the length of training, which must be the same for all training jobs"}
MOST_COMBINATIONS = 100
"""Maximum number of combinations of the ranges' ends that are checked; each takes a few
milliseconds."""


def explain_unfit_tune(recipe: Recipe) -> str | None:
    """Return which field of the recipe prevents the search, and why; None if none does."""
    tune, train = recipe.tune, recipe.train
    assert tune is not None  # noqa: S101 (the caller has checked it)
    hyperparameters = _find_searchable_values(recipe)
    for name in tune.ranges:
        if refusal := _explain_unfit_range(name, tune, recipe, hyperparameters):
            return f"tune.ranges.{name}: {refusal}"
    if train.loop is None:
        return _explain_unfit_script(tune, train)
    if tune.metric is not None or tune.goal != "minimize":
        return "tune.metric: the loop's training jobs are compared by validation loss; remove it"
    if train.start_from is not None and train.start_from.checkpoint is not None:
        return "train.start_from.checkpoint: a search cannot continue another training job"
    return None


def iter_trial_recipes(
    recipe: Recipe, tree: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Value], dict[str, Any]]]:
    """Yield (values, the recipe's tree with them and without a search) for values at the ends of
    the ranges: of one range at a time, then combinations of all.
    """
    assert recipe.tune is not None  # noqa: S101 (the caller has checked it)
    # A script's arguments have no types that could be checked.
    if recipe.train.loop is None:
        return
    ends = {
        name: _list_trial_values(search_range) for name, search_range in recipe.tune.ranges.items()
    }
    single = ({name: value} for name, values in ends.items() for value in values)
    joint = (dict(zip(ends, values, strict=True)) for values in product(*ends.values()))
    for values in chain(single, islice(joint, MOST_COMBINATIONS)):
        trial = deepcopy({name: section for name, section in tree.items() if name != "tune"})
        for name, value in values.items():
            if name.startswith(PREFIX):
                section = trial.setdefault("workload", {}).setdefault("config", {})
            else:
                section = trial["train"]["loop"]
            section[name.removeprefix(PREFIX)] = value
        yield values, trial


def _list_trial_values(search_range: Range | tuple[Value, ...]) -> list[Value]:
    """Return the values to try: all choices, or a range's ends (of integers, also min + 1)."""
    if not isinstance(search_range, Range):
        return [*search_range]
    # The second integer shows whether the values have to be multiples of something.
    second = (
        [search_range.min + 1]
        if isinstance(search_range.min, int) and isinstance(search_range.max, int)
        else []
    )
    return [
        search_range.min,
        *(value for value in second if value < search_range.max),
        search_range.max,
    ]


def _find_searchable_values(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe's own values of the hyperparameters that can be searched, by name."""
    if recipe.train.loop is None:
        return dict(recipe.train.arguments)
    return dict(recipe.train.loop) | as_hyperparameters(dict(recipe.workload_config))


def _explain_unfit_range(
    name: str, tune: TuneConfig, recipe: Recipe, hyperparameters: Mapping[str, Any]
) -> str | None:
    """Return why the range of a hyperparameter cannot be searched; None if it can."""
    loop = recipe.train.loop
    if name not in hyperparameters:
        sections = "train.arguments" if loop is None else "train.loop or workload.config"
        return f"is not in {sections}; {suggest_nearest(name, [*hyperparameters])}"
    if loop is not None and (refusal := _explain_fixed_setting(name, recipe)):
        valid_names = [n for n in hyperparameters if not _explain_fixed_setting(n, recipe)]
        return f"is {refusal}; {suggest_nearest(name, valid_names)}"
    search_range, own_value = tune.ranges[name], hyperparameters[name]
    if not isinstance(own_value, str | bool | int | float):
        return (
            f"{_build_field_path(name, recipe)} is {own_value!r}; a search varies numbers, words, "
            "true "
            "and false"
        )
    if isinstance(search_range, Range) and (
        isinstance(own_value, bool) or not isinstance(own_value, int | float)
    ):
        return (
            f"{_build_field_path(name, recipe)} is {own_value!r}, not a number; give a list of "
            "values"
        )
    if not tune.allows(name, own_value):
        return (
            f"does not contain {_build_field_path(name, recipe)}, which is {own_value!r}; widen "
            "the range, or change that field"
        )
    return None


def _build_field_path(name: str, recipe: Recipe) -> str:
    """Return the path of a hyperparameter's field in the recipe."""
    if recipe.train.loop is None:
        return f"train.arguments.{name}"
    setting = name.removeprefix(PREFIX)
    return f"train.loop.{name}" if setting == name else f"workload.config.{setting}"


def _explain_fixed_setting(name: str, recipe: Recipe) -> str | None:
    """Return why a setting of the loop or the workload cannot be searched; None if it can."""
    if name in BUDGET:
        return BUDGET[name]
    if name in IMMATERIAL:
        return "a setting that does not change the weights"
    if not name.startswith(PREFIX):
        return None
    packing_fields = recipe.samples_spec.packed_with
    if packing_fields is None:
        return "a setting on which packing may depend, since SPEC.packed_with is not set"
    if name.removeprefix(PREFIX) in packing_fields:
        return "a setting with which the samples are packed before the search"
    if recipe.begins_with_model:
        return "a setting of the model from which the training starts"
    return None


def _explain_unfit_script(tune: TuneConfig, train: TrainStepConfig) -> str | None:
    """Return why a script's training jobs cannot be compared in a search; None if they can."""
    if tune.metric not in train.metrics:
        metric_names: list[Any] = [*train.metrics]
        return (
            f"tune.metric: is {tune.metric!r}; a script's training jobs are compared by one of "
            f"train.metrics: {', '.join(metric_names) or 'none is set'}"
        )
    if tune.strategy == "hyperband":
        return "tune.strategy: hyperband needs the number of lines with the metric; choose random"
    return None
