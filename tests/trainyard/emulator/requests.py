"""Valid requests, made from botocore's model of a service alone."""

import functools
from typing import Any

import botocore.session
from botocore.model import (
    ListShape,
    MapShape,
    OperationModel,
    ServiceModel,
    Shape,
    StringShape,
    StructureShape,
)

MODEL = botocore.session.get_session().get_service_model("sagemaker")
_DEEP = 6  # some shapes contain themselves
_TEXTS = {"Arn": "arn:aws:iam::123456789012:role/some-role-name", "Uri": "s3://bkt/there",
          "Offset": "-PT1H"}  # fmt: skip


def operations() -> list[OperationModel]:
    """Return every operation of SageMaker, by name."""
    return [MODEL.operation_model(name) for name in sorted(MODEL.operation_names)]


def minimal(operation: str) -> dict:
    """Return a request to SageMaker with only the required members."""
    return _make_value(MODEL.operation_model(operation).input_shape, "", False)


@functools.cache
def _model(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)


def valid(service: str, operation: str) -> dict:
    """Return a request like :func:`minimal`, for any service."""
    return _make_value(_model(service).operation_model(operation).input_shape, "", False)


def full(operation: str) -> dict:
    """Return a request with every member; of a union the first."""
    return _make_value(MODEL.operation_model(operation).input_shape, "", True)


def _make_value(shape: Shape | None, name: str, everything: bool, depth: int = 0) -> Any:
    if isinstance(shape, StructureShape):
        return _structure(shape, everything, depth)
    if isinstance(shape, ListShape):
        return [_make_value(shape.member, name, everything, depth + 1)] if depth < _DEEP else []
    if isinstance(shape, MapShape):
        return {"key": _make_value(shape.value, name, everything, depth + 1)}
    if isinstance(shape, StringShape):
        return _text(shape, name)
    least = shape.metadata.get("min", 1) if shape else 1
    kinds: dict[str, Any] = {"boolean": True, "float": float(least), "double": float(least)}
    kinds |= {"timestamp": 1.5e9, "blob": b"x"}
    return kinds.get(shape.type_name, least) if shape else {}


def _structure(shape: StructureShape, everything: bool, depth: int) -> dict:
    members = list(shape.members) if everything and depth < _DEEP else shape.required_members
    if shape.is_tagged_union:
        members = list(shape.members)[:1]
    return {m: _make_value(shape.members[m], m, everything, depth + 1) for m in members}


def _text(shape: StringShape, name: str) -> str:
    if shape.enum:
        return str(shape.enum[0])
    text = next((made for part, made in _TEXTS.items() if part in name), name or "x")
    return text.ljust(shape.metadata.get("min", 0), "x")[: shape.metadata.get("max", 60)]
