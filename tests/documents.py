"""Whether a document has the keys that its type says, and no others."""

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints, is_typeddict


def keys_that_differ(document: Any, of: type, where: str = "") -> list[str]:
    """The place of each key that ``document`` lacks, or has beyond the TypedDict ``of``."""
    if not isinstance(document, Mapping):
        return []
    if not is_typeddict(of):
        inner = [one for one in get_args(of) if is_typeddict(one)]
        if of is not None and getattr(of, "__origin__", None) is dict:
            return [k for name, one in document.items() for t in inner
                    for k in keys_that_differ(one, t, f"{where}.{name}")]  # fmt: skip
        return [key for t in inner for key in keys_that_differ(document, t, where)]
    hints = get_type_hints(of)
    missing = of.__required_keys__ - document.keys()
    found = [f"{where}.{key}" for key in sorted(missing | (document.keys() - hints.keys()))]
    for name in hints.keys() & document.keys():
        found += keys_that_differ(document[name], hints[name], f"{where}.{name}")
    return found
