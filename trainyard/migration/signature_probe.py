"""Say which calls do not fit the SDK that is installed here.

Started by path, under a Python with SDK v3: it imports nothing of Trainyard. Calls come as JSON on
standard input; the SDK's version and a reason or null for each go to the file that is named.
"""

import importlib
import importlib.metadata
import inspect
import json
import sys
from typing import Any

_NAME_LIMIT = 8


def _load(name: str) -> Any:
    """Return what a full name stands for. Raises ImportError, AttributeError."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as absent:
            # The last part is a class, say, and no module. Where another module is absent, the
            # SDK itself cannot be imported.
            if end > 1 and ".".join(parts[:end]).startswith(str(absent.name)):
                continue
            raise
        for part in parts[end:]:
            value = getattr(value, part)
        return value
    raise ImportError(name)


def reason(call: dict[str, Any]) -> str | None:
    """Return why a call fails, as far as names and signatures say; None if it fits."""
    try:
        value = _load(call["name"])
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
    """Read calls, and write the answer."""
    try:
        version = importlib.metadata.version("sagemaker")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    calls = json.load(sys.stdin)
    reasons = [reason(call) for call in calls] if version.split(".")[0] == "3" else []
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"version": version, "reasons": reasons}, file)


if __name__ == "__main__":
    main(sys.argv[1])
