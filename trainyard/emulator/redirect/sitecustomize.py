"""Redirects clients with an explicit address of AWS, or a named profile, to AWS_ENDPOINT_URL, like
all others.

botocore prefers an address in the code to the environment's, and the SageMaker SDK asks
``https://sts.<region>.amazonaws.com`` for its identity. A profile that code names is in no file
that the emulator's environment names, and would hide that environment's credentials.

Python imports this file at its start, because its folder is first on PYTHONPATH. Any version of
Python, of botocore and of the user's packages may do so; hence it uses only the standard library,
and imports nothing before the program does. A ``sitecustomize`` that it hides is run after it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_SESSION_MODULES = ("botocore.session", "aiobotocore.session")
_AWS = re.compile(r"https?://([^/]+\.)?(amazonaws\.com(\.cn)?|api\.aws)(:\d+)?/?")


def led(address: Any) -> Any:
    """Return AWS_ENDPOINT_URL for an address of AWS; else, or if it is not set, ``address``."""
    endpoint_url = os.environ.get("AWS_ENDPOINT_URL")
    return (
        endpoint_url
        if endpoint_url and isinstance(address, str) and _AWS.fullmatch(address)
        else address
    )


def hook(module: ModuleType) -> None:
    """Wrap the methods in ``WRAPPERS`` of the session classes that ``module`` defines, once."""
    for session in vars(module).values():
        if isinstance(session, type) and session.__module__ == module.__name__:
            for name, wrap in WRAPPERS.items():
                method = vars(session).get(name)
                if method and not hasattr(method, "trainyard"):
                    wrapper = functools.wraps(method)(wrap(method))
                    wrapper.trainyard = True  # type: ignore[attr-defined]
                    setattr(session, name, wrapper)


def _redirect_client(create_client: Callable) -> Callable:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "endpoint_url" in kwargs:
            kwargs["endpoint_url"] = led(kwargs["endpoint_url"])
        return create_client(*args, **kwargs)

    return wrapper


def _hide_profile_variable(get_config_variable: Callable) -> Callable:
    def wrapper(session: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "profile" and os.environ.get("AWS_ENDPOINT_URL"):
            return None
        return get_config_variable(session, name, *args, **kwargs)

    return wrapper


def _hide_profile(instance_variables: Callable) -> Callable:
    def wrapper(session: Any) -> Any:
        variables = instance_variables(session)
        if os.environ.get("AWS_ENDPOINT_URL"):
            variables.pop("profile", None)  # it is a copy
        return variables

    return wrapper


WRAPPERS = {
    "create_client": _redirect_client,
    "get_config_variable": _hide_profile_variable,
    "instance_variables": _hide_profile,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Hooks a module as soon as the program has imported it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _SESSION_MODULES:
            return None
        # The finder of paths alone: all finders together would ask this one again.
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            _hook_after(spec.loader)
        return spec


def _hook_after(loader: Any) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        hook(module)

    loader.exec_module = exec_module


def _chain() -> None:
    """Run the ``sitecustomize`` that this one hides."""
    folder = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path) != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec and spec.loader:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":  # at the start of an interpreter, not when a test imports it
    sys.meta_path.insert(0, _Finder())
    _chain()
