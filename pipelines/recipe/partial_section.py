"""Read a section with wrong fields as far as it is right, so that all else is checked, too.

A field that is wrong or missing is absent from the object: a check that asks for it ends in an
AttributeError, and says nothing until the field is right.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from pipelines.recipe.usual_names import NAMES

Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[str | int]


def read_partially(model: type[Model], value: Any, wrong: Sequence[Location]) -> Model:
    """Return a ``model`` with the fields of ``value`` that are right, the others absent.

    ``wrong``: where pydantic found something wrong in it.
    """
    section_object = model.model_construct()
    content = _prepare_content(model, value)
    meant_fields = _guess_fields(model, content)
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = [place[1:] for place in wrong if place[:1] == (key,)]
        section = _section(field.annotation)
        section_object.__dict__.pop(name, None)
        if key not in content:
            if not field.is_required() and name not in meant_fields:
                section_object.__dict__[name] = field.get_default(call_default_factory=True)
        elif section and isinstance(content[key], Mapping):
            section_object.__dict__[name] = read_partially(section, content[key], inner)
        elif not inner:
            with suppress(ValidationError):  # only a check of the section's own takes this form
                section_object.__dict__[name] = TypeAdapter(field.annotation).validate_python(
                    content[key]
                )
    others = {k: v for k, v in content.items() if k not in _names(model)}
    if model.model_config.get("extra") == "allow":
        wrong_names = {str(part) for place in wrong for part in place}
        extra = {name: v for name, v in others.items() if name not in wrong_names}
        object.__setattr__(section_object, "__pydantic_extra__", extra)
    object.__setattr__(
        section_object, "__pydantic_fields_set__", {*content} & {*model.model_fields}
    )
    return section_object


def broken_rules(section: BaseModel, above: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield (where, message) of each check across the fields of a section, and of those in it, that
    finds something wrong in what is there.
    """
    section_copy = section.model_copy()
    for name, field in type(section).model_fields.items():
        inner = section.__dict__.get(name)
        if isinstance(inner, BaseModel) and name in section.model_fields_set:
            faults = [*broken_rules(inner, (*above, field.alias or name))]
            yield from faults
            if faults:  # the rules of the whole rely on those of its parts
                section_copy.__dict__.pop(name)
    for rule in type(section).__pydantic_decorators__.model_validators.values():
        if rule.info.mode != "after":
            continue
        try:
            rule.func(section_copy)
        except ValidationError:
            continue  # of another section, which is checked by itself
        except ValueError as error:
            yield above, str(error)
        except AttributeError:
            continue


def _prepare_content(model: type[BaseModel], value: Any) -> Mapping[str, Any]:
    """Return the section's content as the model's own validators before it make it."""
    for rule in model.__pydantic_decorators__.model_validators.values():
        if rule.info.mode == "before":
            with suppress(ValueError):
                value = rule.func(value)
    return value if isinstance(value, Mapping) else {}


def _guess_fields(model: type[BaseModel], content: Mapping[str, Any]) -> set[str]:
    """Return the fields that the unknown names in the section may stand for."""
    names = [*_names(model)]
    unknown = [name for name in content if name not in names]
    close = (match for name in unknown for match in get_close_matches(name, names, cutoff=0.5))
    return {*close, *(NAMES[name] for name in unknown if name in NAMES)}


def _names(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field is a section of; None if it is no section."""
    if get_origin(annotation) in (Union, UnionType):
        options = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _section(options[0]) if len(options) == 1 else None
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None
