"""The shapes of SageMaker's requests, as botocore contains them, and checks of requests."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from botocore.loaders import Loader
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape
from botocore.validate import ParamValidator

from trainyard.emulator.request_scope import ApiError
from trainyard.language.expressions import is_expression


@functools.cache
def load_service_model() -> ServiceModel:
    """Return botocore's model of SageMaker."""
    return ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def check_request_shape(operation: str, request: dict) -> None:
    """Refuse a request that SageMaker would not accept, with SageMaker's message.

    boto3 checks its own calls; the resolved Arguments of a pipeline step are checked only here. A
    number in a string field, such as an Integer parameter in HyperParameters, is refused as on AWS
    (aws/sagemaker-python-sdk#2631). Raises ``ValidationException``.
    """
    check_shape(load_service_model().operation_model(operation), request)


def check_shape(operation: OperationModel, request: dict) -> None:
    """Refuse a request that the operation's shape does not allow, in AWS's words.

    Raises ``ValidationException``.
    """
    shape = operation.input_shape
    if shape is None:
        return
    if broken := list(_iter_violations(shape, request, "")):
        many = "error" if len(broken) == 1 else "errors"
        message = f"{len(broken)} validation {many} detected: {'; '.join(broken)}"
        raise ApiError("ValidationException", message)
    if reason := describe_shape_errors(shape, request):
        raise ApiError("ValidationException", f"{operation.name}: {reason}")


def select_members(operation: str, record: dict) -> dict:
    """Return the members of ``record`` that the response of the operation has."""
    members = load_service_model().operation_model(operation).output_shape.members
    return {name: value for name, value in record.items() if name in members}


def _iter_violations(shape: Shape, value: Any, location: str) -> Iterator[str]:
    """Iterate over violations of the shape's limits.

    A value of the wrong type is not reported here: ``describe_shape_errors`` does that.
    """
    value_text = "null" if value is None else f"'{str(value)[:300]}'"
    for broken in _iter_limit_faults(value, shape.metadata):
        yield f"Value {value_text} at '{location}' failed to satisfy constraint: {broken}"
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        for name, member in shape.members.items():
            path = (
                f"{location}.{_lower_first_letter(name)}" if location else _lower_first_letter(name)
            )
            if value.get(name) is not None:
                yield from _iter_violations(member, value[name], path)
            elif name in shape.required_members:
                text = "failed to satisfy constraint: Member must not be null"
                yield f"Value null at '{path}' {text}"
    elif isinstance(shape, ListShape) and isinstance(value, list):
        for number, entry in enumerate(value, 1):
            yield from _iter_violations(shape.member, entry, f"{location}.{number}.member")


def _lower_first_letter(name: str) -> str:
    return name[:1].lower() + name[1:]


def _iter_limit_faults(value: Any, limits: dict) -> Iterator[str]:
    """Iterate over SageMaker's messages for the limits that a value violates."""
    if limits.get("enum") and isinstance(value, str) and value not in limits["enum"]:
        yield f"Member must satisfy enum value set: [{', '.join(limits['enum'])}]"
    size = len(value) if isinstance(value, str | list) else value
    measure = "length" if isinstance(value, str | list) else "value"
    if isinstance(size, int | float) and not isinstance(size, bool):
        if size > limits.get("max", size):
            yield f"Member must have {measure} less than or equal to {limits['max']}"
        if size < limits.get("min", size):
            yield f"Member must have {measure} greater than or equal to {limits['min']}"
    pattern = limits.get("pattern")
    if pattern and isinstance(value, str) and not _compile_pattern(pattern).fullmatch(value):
        yield f"Member must satisfy regular expression pattern: {pattern}"


@functools.cache
def _compile_pattern(pattern: str) -> re.Pattern:
    """Return AWS's regular expression with Java's character classes written as Python's.

    Return an expression that matches everything if Python cannot read it.
    """
    try:
        return re.compile(re.sub(r"\\p\{([LNZ])\}", lambda c: _CLASSES[c[1]], pattern), re.DOTALL)
    except re.error:
        return re.compile(".*", re.DOTALL)


_CLASSES = {"L": r"\w", "N": r"\d", "Z": r"\s"}


def check_enum_value(shape: str, location: str, value: str) -> None:
    """Raise ``ValidationException`` if ``value`` is not one of the values of an enum shape."""
    for broken in _iter_violations(load_service_model().shape_for(shape), value, location):
        raise ApiError("ValidationException", f"1 validation error detected: {broken}")


def describe_shape_errors(shape: Shape | None, request: dict) -> str:
    """Return text about missing, unknown or mistyped members; empty if there are none."""
    result = ParamValidator().validate(request, shape)
    return "; ".join(result.generate_report().splitlines()) if result.has_errors() else ""


# Checks of a job's request, which refuse what cannot be run here.
#
# CreatePipeline makes the same checks on the Arguments of a step before any of its expressions has
# a value. A check that needs such a value is made only when the step runs.

Check = Callable[[], object]
"""A function that raises :class:`ApiError` for a request that this emulator cannot run."""


class UndecidedError(Exception):
    """A check needs the value of an expression, which is unknown."""


class Unknown:
    """The unknown value of an expression.

    It has a ``repr``; every other use raises UndecidedError.
    """

    def __init__(self, expression: dict[str, Any]) -> None:
        self._expression = expression

    def __repr__(self) -> str:
        return repr(self._expression)

    def _ask(self, *_: object) -> NoReturn:
        raise UndecidedError

    __class__ = property(_ask)  # so that isinstance raises, too
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _ask
    __bool__ = __str__ = __format__ = __len__ = __iter__ = __contains__ = __getitem__ = _ask
    __getattr__ = __add__ = __radd__ = __mul__ = __rmul__ = __or__ = __ror__ = _ask


def mask_expressions(value: Any) -> Any:
    """Return ``value`` with each expression replaced by an :class:`Unknown`."""
    if is_expression(value):
        return Unknown(value)
    if isinstance(value, dict):
        return {key: mask_expressions(item) for key, item in value.items()}
    return [mask_expressions(item) for item in value] if isinstance(value, list) else value


def find_first_refusal(checks: Iterable[Check]) -> str | None:
    """Return the message of the first check that refuses the request; None if none does.

    The request may contain unknown values.
    """
    # If a generator of checks itself needs an unknown value, it raises, and ends there.
    remaining = iter(checks)
    while True:
        try:
            next(remaining)()
        except StopIteration:
            return None
        except (UndecidedError, KeyError, TypeError, AttributeError):
            # Missing or malformed members are checked when the step runs with the complete request.
            continue
        except ApiError as error:
            return error.message
