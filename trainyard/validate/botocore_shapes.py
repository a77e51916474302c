"""Shapes to check values against: botocore's service models, and our own in the same form.

The model is read as botocore's own JSON, without a client: 0.05 s, once per process.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import botocore.loaders

from trainyard.language.step_types.shape_form import ANYTHING


@functools.cache
def service_shapes(service: str) -> Mapping[str, Mapping[str, Any]]:
    """Return shape name → shape, from botocore's model of ``service``."""
    return botocore.loaders.Loader().load_service_model(service, "service-2")["shapes"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape; ``origin`` and ``name`` say in a finding where a constraint is from."""

    origin: str
    """``botocore``, or the source of an own shape."""

    name: str
    """Name, such as ``CreateTrainingJobRequest.StoppingCondition``."""

    body: Mapping[str, Any]
    """``type`` and the type's entries: members, required, member, key, value, enum, …"""

    service: str = "sagemaker"

    @property
    def type(self) -> str:
        """Botocore's type: structure, list, map, string, integer, …; ``any`` in own shapes."""
        return self.body["type"]

    @property
    def source(self) -> str:
        """Source that a finding cites."""
        return f"{self.origin}: {self.name}"

    @property
    def members(self) -> Mapping[str, Any]:
        """Members of a structure: name → shape."""
        return self.body.get("members", {})

    def member(self, key: str) -> "Shape":
        """Return the shape of a structure's member."""
        return self._follow(self.members[key], key)

    def item(self) -> "Shape":
        """Return the shape of a list's items."""
        return self._follow(self.body["member"], "")

    def key(self) -> "Shape":
        """Return the shape of a map's keys."""
        return self._follow(self.body["key"], "key")

    def value(self) -> "Shape":
        """Return the shape of a map's values."""
        return self._follow(self.body["value"], "value")

    def _follow(self, target: Mapping[str, Any], key: str) -> "Shape":
        """Return the shape that ``target`` names, or is itself (in an own shape)."""
        if "shape" in target:
            owner = self.name if self.origin != "botocore" else self.name.split(".")[0]
            shape_name = f"{owner}.{key}" if key else target["shape"]
            body = _without(service_shapes(self.service)[target["shape"]], target)
            if body["type"] in ("structure", "list", "map"):
                return Shape("botocore", target["shape"], body, self.service)
            return Shape("botocore", shape_name, body, self.service)
        return Shape(self.origin, f"{self.name}.{key}" if key else self.name, target, self.service)


def _without(body: Mapping[str, Any], target: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a structure without the members that ``target``, an own shape, leaves out."""
    gone = target.get("without")
    if not gone:
        return body
    members = {name: member for name, member in body["members"].items() if name not in gone}
    required_names = [name for name in body.get("required", ()) if name not in gone]
    return {**body, "members": members, "required": required_names}


def service_shape(name: str, service: str = "sagemaker") -> Shape:
    """Return the shape that botocore's model calls ``name``.

    If the shape is missing in an older botocore, nothing is checked (``requests`` warns about
    that).
    """
    return Shape("botocore", name, service_shapes(service).get(name, ANYTHING), service)


@functools.cache
def pattern(text: str) -> re.Pattern[str] | None:
    r"""Return a model's pattern, for ``fullmatch``; None if Python cannot express it.

    Java writes ``\p{L}`` for a letter; Python has no such class, so it is widened to ``\w``.
    """
    for java, python in ((r"\p{L}", r"\w"), (r"\p{Z}", r"\s"), (r"\p{N}", r"\d")):
        text = text.replace(java, python)
    text = re.sub(r"\)\$\{(\d+),(\d+)\}$", r")", text.replace(r"\p{Alnum}", "A-Za-z0-9"))
    if r"\p{" in text:
        return None
    try:
        return re.compile(text.removeprefix("^").removesuffix("$"))
    except re.error:
        return None
