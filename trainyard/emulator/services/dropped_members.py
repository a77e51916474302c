"""Members of a request that moto's IAM takes and never looks at, read from its source.

moto's methods ask for each member by its name. A member whose name a method does not hold has no
effect: a user's PermissionsBoundary, say, which would limit nobody.
"""

import ast
import functools
import inspect
from collections.abc import Iterator

from werkzeug import Request

_PROTOCOL_MEMBERS = {"Action", "Version"}


def dropped_members(request: Request) -> list[str]:
    """Return the names of a request to IAM that moto would drop; none for an operation that it has
    not.
    """
    texts = _texts(request.values.get("Action", ""))
    names = {name.partition(".")[0] for name in request.values if not name.startswith("X-Amz-")}
    return sorted(
        name
        for name in (names - _PROTOCOL_MEMBERS if texts else ())
        if not any(text == name or text.startswith(f"{name}.") for text in texts)
    )


@functools.cache
def _texts(operation: str) -> frozenset[str]:
    """Return every text in moto's method for the operation, and in those of its own that it
    calls.
    """
    from moto.core.utils import camelcase_to_underscores  # 0.3 s with IAM: see managed_policies

    methods = _methods()
    pending, texts, visited_names = [camelcase_to_underscores(operation)], set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name in visited_names or name not in methods:
            continue
        visited_names.add(name)
        for node in ast.walk(methods[name]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.Attribute):
                pending.append(node.attr)
    return frozenset(texts)


@functools.cache
def _methods() -> dict[str, ast.FunctionDef]:
    from moto.iam.responses import IamResponse

    tree = ast.parse(inspect.getsource(IamResponse))
    return {node.name: node for node in _functions(tree)}


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
