"""Check which calls do not fit the signatures of the SDK that is installed in this Python.

This file is run by its path under a Python with SDK v3, so it imports nothing of Trainyard. It
reads calls as JSON from standard input, and writes the SDK's version and, for each call, a reason
or null to the file that is its argument.
"""

import importlib
import importlib.metadata
import inspect
import json
import sys
from typing import Any

_NAME_LIMIT = 8


def _import_object(name: str) -> Any:
    """Return the object with a full name, such as ``package.module.Class``.

    Raises:
        ImportError: no leading part of the name is a module that can be imported.
        AttributeError: the module has no such name.
    """
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as absent:
            # The last part is not a module but, for example, a class: try without it. If another
            # module is missing, the SDK itself cannot be imported.
            if end > 1 and ".".join(parts[:end]).startswith(str(absent.name)):
                continue
            raise
        for part in parts[end:]:
            value = getattr(value, part)
        return value
    raise ImportError(name)


def explain_failure(call: dict[str, Any]) -> str | None:
    """Return why a call would fail, judged by names and signatures; None if it fits or if that
    cannot be known.
    """
    try:
        value = _import_object(call["name"])
    except (ImportError, AttributeError) as absent:
        return f"SDK v3 has no such name ({absent})"
    positional = call["positional"]
    if method := call["method"]:
        if not inspect.isclass(value):
            return None
        if not hasattr(value, method):
            by_chance = hasattr(value, "__getattr__") and not hasattr(value, "model_fields")
            return None if by_chance else f"SDK v3's {value.__name__} has no {method}"
        value = getattr(value, method)
    if positional is None or not callable(value):
        return None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    parameters = [*signature.parameters.values()]
    if call["method"] and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    signature = signature.replace(parameters=parameters)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind == p.VAR_KEYWORD for p in parameters)
    others = [name for name in call["keywords"] if name not in names and not open_ended]
    keywords = {name: None for name in call["keywords"] if name not in others}
    reasons = [f"it has no argument {', '.join(others)}"] if others else []
    try:
        signature.bind(*[None] * positional, **keywords)
    except TypeError as wrong:
        reasons.append(str(wrong))
    takes = f"it takes {', '.join(names[:_NAME_LIMIT])}{', …' if len(names) > _NAME_LIMIT else ''}"
    return "; ".join([*reasons, takes]) if reasons else None


def main(out: str) -> None:
    """Read the calls from standard input, and write the result to the file ``out``."""
    try:
        version = importlib.metadata.version("sagemaker")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    calls = json.load(sys.stdin)
    reasons = [explain_failure(call) for call in calls] if version.split(".")[0] == "3" else []
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"version": version, "reasons": reasons}, file)


if __name__ == "__main__":
    main(sys.argv[1])
