"""Say what is wrong with fields of a recipe: the value, what is expected, an example, the fix.

Everything derives from the fields' JSON Schema, examples included, so a new field needs nothing
here: ``Field(pattern=…, examples=[…])``, or a default, which is an example, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipelines.recipe.usual_names import NAMES, REMARKS
from trainyard.common.errors import nearest

LONGEST = 200
"""Characters of a value in a message."""
FEW = 5
PART = re.compile(r"[^A-Za-z0-9](?=[A-Za-z0-9])|[A-Za-z](?=\d)")
"""Where an example is cut, to put what it begins with before a value."""
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
"""Keyword of JSON Schema → its words."""


class FieldMessages:
    """Messages about the fields of a model, which stands at ``where`` in the recipe.

    ``whole``: the model of the whole recipe, to say where a misplaced field belongs.
    """

    def __init__(
        self, model: type[BaseModel], location: tuple[str, ...], recipe_model: type[BaseModel]
    ) -> None:
        self._schema, self._others, self._location = _schema(model), _schema(recipe_model), location

    def describe(self, problems: Sequence[ErrorDetails]) -> list[str]:
        """Return a line ``field: problem`` for each of pydantic's problems with the model."""
        lacking: dict[tuple[str, ...], list[str]] = {}
        for problem in problems:
            if problem["type"] == "missing":
                path, _ = self._find(problem["loc"])
                lacking.setdefault(path[:-1], []).append(path[-1])
        unknown = [p for p in problems if p["type"] == "extra_forbidden"]
        lines = [self._unknown(problem, lacking) for problem in unknown]
        # What an unknown name stood for is said once, and not as missing, too.
        lines += [line for p in problems if p not in unknown for line in self._describe(p, lacking)]
        return [*dict.fromkeys(lines)]

    def _describe(self, problem: ErrorDetails, lacking: Mapping[tuple, list[str]]) -> Iterator[str]:
        path, node = self._find(problem["loc"])
        field = ".".join((*self._location, *path))
        if problem["type"] == "missing":
            if path[-1] in lacking.get(path[:-1], ()):
                value = as_yaml(example(node, self._schema))
                yield f"{field}: is missing; add it, such as {path[-1]}: {value}"
        elif problem["type"] != "value_error":
            yield f"{field}: is {brief(problem['input'])}; " + expectation(
                node, problem["input"], self._schema
            )
        elif not isinstance(problem["ctx"]["error"], ValidationError):  # it has lines of its own
            yield self.about_section(problem["loc"], problem["msg"].removeprefix("Value error, "))

    def about_section(self, location: Sequence[str | int], message: str) -> str:
        """Return the line of a check over several fields of a section, whose message may begin with
        one of them.
        """
        path, node = self._find(location)
        field = ".".join((*self._location, *path))
        inner, colon, rest = message.partition(": ")
        if not field:  # a check of the whole recipe: its message names the field
            return message
        if colon and inner.partition(".")[0] in properties(node, self._schema):
            return f"{field}.{inner}: {rest}"
        return f"{field}: {message}"

    def _unknown(self, problem: ErrorDetails, lacking: dict[tuple[str, ...], list[str]]) -> str:
        """Return the line of an unknown field: what it is called here, and where."""
        path, node = self._find(problem["loc"], unknown=True)
        name, section = path[-1], path[:-1]
        names = [*properties(node, self._schema)]
        missing = lacking.get(section, [])
        usual_name = NAMES.get(name.lower().replace("-", "_"))
        close = get_close_matches(name, names, n=1, cutoff=0.75)
        if close:
            field_name, fix = close[0], f"nearest valid name: {close[0]}"
        elif usual_name in names:
            field_name, fix = usual_name, f"it is called {usual_name} here"
        elif elsewhere := self._places(name) or (self._places(usual_name) if usual_name else []):
            field_name, fix = "", f"write {' or '.join(elsewhere)}"
        elif len(missing) == 1:
            field_name, fix = missing[0], f"expected {missing[0]}"
        else:
            field_name, fix = "", nearest(name, names)
        if field_name in missing:
            missing.remove(field_name)
            fix += ", which is missing"
        remark = REMARKS.get(name.lower().replace("-", "_"), "")
        field = ".".join((*self._location, *path))
        return f"{field}: unknown field (value {brief(problem['input'])}); {fix}{remark}"

    def _places(self, name: str) -> list[str]:
        """Return the fields of the whole recipe that have this name, if they are few."""
        paths = [path for path in _paths(self._others, self._others) if path[-1] == name]
        return [".".join(path) for path in paths] if len(paths) <= 2 else []  # noqa: PLR2004

    def _find(
        self, location: Sequence[str | int], *, unknown: bool = False
    ) -> tuple[tuple[str, ...], Schema]:
        """Return the field's path and its schema; pydantic's location also names the type of a
        union that it tried, which the path leaves out.
        """
        path: list[str] = []
        node: Schema = self._schema
        for part in location:
            inner = _member(node, part, self._schema)
            if inner is not None:
                node = inner
                path.append(str(part))
        return (*path, str(location[-1])) if unknown else tuple(path), node


@cache
def _schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _tag(part: str | int) -> bool:
    """Return whether pydantic put it into a location beside the names of fields."""
    return str(part).startswith(("__pydantic_extra__", "<", "["))


def _options(node: Schema, root: Schema) -> list[Schema]:
    """Return what a value of this schema may be, null aside, with references followed."""
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _options({**root["$defs"][node["$ref"].rpartition("/")[2]], **rest}, root)
    if several := node.get("anyOf") or node.get("oneOf"):
        outer = {key: node[key] for key in ("examples", "default") if node.get(key) is not None}
        options = [alternative for option in several for alternative in _options(option, root)]
        return [
            {**outer, **alternative} for alternative in options if alternative.get("type") != "null"
        ]
    return [node]


def properties(node: Schema, root: Schema) -> Schema:
    """Return name → schema of the fields of a section; empty where it is none."""
    return {
        n: field_schema
        for o in _options(node, root)
        for n, field_schema in o.get("properties", {}).items()
    }


def _member(node: Schema, part: str | int, root: Schema) -> Schema | None:
    for option in _options(node, root):
        if isinstance(part, int) and option.get("type") == "array":
            several = option.get("prefixItems", ())
            return several[part] if part < len(several) else option.get("items", {})
        if part in (fields := option.get("properties", {})):
            return fields[part]
        others = option.get("additionalProperties")
        if option.get("type") == "object" and isinstance(part, str) and not _tag(part):
            if isinstance(others, Mapping):
                return others
            if others is True:
                return {}
    return None


def _paths(node: Schema, root: Schema, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in properties(node, root).items():
        yield (*above, name)
        yield from _paths(inner, root, (*above, name))


def expectation(node: Schema, value: Any, root: Schema) -> str:
    """Return ``expected …, such as …``, and the valid value that is nearest to ``value``."""
    options = _options(node, root)
    words = dict.fromkeys(_words(option, root) for option in options)
    if "a finite number" in words:
        words.pop("a whole number", None)
    text = f"expected {' or '.join(words)}"
    near = next(
        (match for option in options if (match := _nearest(option, value)) is not None), None
    )
    if near is not None:
        return f"{text}; nearest valid value: {as_yaml(near)}"
    has_form = any("pattern" in option or "enum" in option for option in options)
    value_example = None if has_form else example(node, root)
    return text if value_example in (None, {}) else f"{text}, such as {as_yaml(value_example)}"


def _words(option: Schema, root: Schema) -> str:
    """Return what a value of this schema is, in words."""
    limits = [words.format(option[key]) for key, words in BOUNDS.items() if key in option]
    bounds = f" ({', '.join(limits)})" if limits else ""
    if choices := option.get("enum", [option["const"]] if "const" in option else []):
        return f"one of {', '.join(map(as_yaml, choices))}" if len(choices) > 1 else str(choices[0])
    kind = option.get("type")
    if kind == "array":
        inner = " or ".join(
            _words(alternative, root) for alternative in _options(option.get("items", {}), root)
        )
        return f"a list{bounds}, each {inner}" if inner else f"a list{bounds}"
    if kind == "object" and "properties" in option:
        return f"a section with fields such as {', '.join([*option['properties']][:FEW])}"
    kinds = {
        "boolean": "true or false",
        "integer": "a whole number",
        "number": "a finite number",
        "object": "a mapping of names to values",
        "string": f"text like {as_yaml(example(option, root))}" if "pattern" in option else "text",
    }
    return f"{kinds.get(str(kind), 'a value')}{bounds}"


def example(node: Schema, root: Schema) -> Any:
    """Return a valid value: an example, the default, or one that follows from the type."""
    for option in _options(node, root):
        if option.get("examples"):
            return option["examples"][0]
        if option.get("default") not in (None, {}, [], ""):
            return option["default"]
        derived_value = _derive_example(option, root)
        if derived_value is not None:
            return derived_value
    return None


def _derive_example(option: Schema, root: Schema) -> Any:
    if choices := option.get("enum"):
        return choices[0]
    kind = option.get("type")
    if "const" in option or kind == "boolean":
        return option.get("const", True)
    if kind in ("integer", "number"):
        return _number(option, 1)
    if kind == "array":
        inner = example(option.get("items", {}), root)
        items = [example(item, root) for item in option.get("prefixItems", ())]
        return items or ([] if inner is None else [inner] * option.get("minItems", 1))
    if kind == "object":
        required_fields = {name: option["properties"][name] for name in option.get("required", ())}
        if not required_fields and isinstance(inner := option.get("additionalProperties"), Mapping):
            required_fields = {"name": inner}
        return {name: example(inner, root) for name, inner in required_fields.items()}
    return "text" if kind == "string" and "pattern" not in option else None


def _number(option: Schema, value: float) -> float:
    """Return the number nearest to ``value`` that is in the bounds."""
    low = option.get("minimum", option.get("exclusiveMinimum"))
    high = option.get("maximum", option.get("exclusiveMaximum"))
    if "exclusiveMinimum" in option and value <= option["exclusiveMinimum"]:
        value = (low + high) / 2 if high is not None else low + 1
    if "exclusiveMaximum" in option and value >= option["exclusiveMaximum"]:
        value = (low + high) / 2 if low is not None else high - 1
    step = option.get("multipleOf", 1)
    value = max(value, low) if low is not None else value
    value = min(value, high) if high is not None else value
    return -(-value // step) * step if option.get("type") == "integer" else value


def _nearest(option: Schema, value: Any) -> Any:
    """Return the valid value that ``value`` was meant as; None if it cannot be told."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if choices := option.get("enum"):
        close = get_close_matches(str(value), [*map(str, choices)], n=1, cutoff=0.5)
        close = close or [choice for choice in choices if str(choice).lower() == str(value).lower()]
        return next((choice for choice in choices if str(choice) in map(str, close)), None)
    if option.get("type") in ("integer", "number"):
        return _nearest_number(option, value)
    return _of_form(option, str(value)) if "pattern" in option else None


def _nearest_number(option: Schema, value: str | float) -> float | None:
    if isinstance(value, str):  # 16 samples, 5e-4, 1,000
        begin = re.match(r"[-+]?\d[\d_,]*(\.\d+)?([eE][-+]?\d+)?", value.strip())
        if begin is None:
            return None
        value = float(re.sub("[_,]", "", begin[0]))
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 (NaN)
        return None
    low, high = option.get("exclusiveMinimum"), option.get("exclusiveMaximum")
    if (low is not None and value <= low) or (high is not None and value >= high):
        return None  # no number is the nearest to a bound that is not in the range
    number = _number(option, value)
    return int(number) if number == int(number) and option.get("type") == "integer" else number


def _of_form(option: Schema, value: str) -> str | None:
    """Return the value in the form that the pattern asks for: with what the examples begin with
    (``ml.``, ``s3://``, an ARN up to the name), or without the characters that are not allowed.
    """
    text = value.strip().rstrip("/")
    plain = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
    if re.match(r"[a-z0-9]+://|arn:", text):  # its name alone, where no address is expected
        plain = re.split("[:/]", text)[-1]
    alone = [text, text.lower(), plain, plain.lower()]
    behind = [text, text.lower(), text.replace(".", "")]
    if ":" in text or not text[:1].isalnum():  # an address of another kind
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
    """Return a value as a recipe has it, on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def brief(value: Any) -> str:
    """Return ``value`` as Python writes it, shortened for a message."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
