"""Manifests against the shapes of their kinds, offline.

``schemas.json`` is made by ``python scripts/crds.py``. It knows fields and types; what a cluster
decides by itself (rules in CEL, quotas, whether a claim is there) it does not.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

SCHEMAS = Path(__file__).with_name("schemas.json")


def problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    """``spec.trainer.numNode: …`` for each field that the kind has not, or has in another type."""
    validator = _validator(str(manifest.get("kind")))
    if validator is None:
        yield f"kind: {manifest.get('kind')!r} is not known; known are {', '.join(kinds())}"
        return
    for error in validator.iter_errors(manifest):
        yield _said(error)


def kinds() -> list[str]:
    """The kinds whose shapes are known."""
    return list(_schemas()["kinds"])


def _said(error: ValidationError) -> str:
    return f"{'.'.join(map(str, error.absolute_path)) or 'manifest'}: {error.message}"


@cache
def _schemas() -> dict[str, Any]:
    return json.loads(SCHEMAS.read_text(encoding="utf-8"))


@cache
def _validator(kind: str) -> Draft202012Validator | None:
    schemas = _schemas()
    shape = schemas["kinds"].get(kind)
    return shape and Draft202012Validator({**shape, "$defs": schemas["$defs"]})
