"""Redirect clients with an explicit AWS address, or with a named profile, to AWS_ENDPOINT_URL.

botocore prefers an address in the code to the one in the environment, and the SageMaker SDK uses
``https://sts.<region>.amazonaws.com`` explicitly to find its identity. A profile that is named in
code is in none of the files that the emulator's environment names, and would replace the
credentials of that environment.

Python imports this file when it starts, because the folder is first on PYTHONPATH. The process may
have any version of Python, of botocore and of the user's packages; so the file uses only the
standard library, and imports botocore no earlier than the program does. If there is another
``sitecustomize``, which this one hides, it is run afterwards.
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


def redirect_address(address: Any) -> Any:
    """Return AWS_ENDPOINT_URL if it is set and ``address`` is one of AWS; else ``address``."""
    endpoint_url = os.environ.get("AWS_ENDPOINT_URL")
    return (
        endpoint_url
        if endpoint_url and isinstance(address, str) and _AWS.fullmatch(address)
        else address
    )


def wrap_session_methods(module: ModuleType) -> None:
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
    """Wrap ``create_client``, so that an explicit AWS address is redirected to the emulator."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "endpoint_url" in kwargs:
            kwargs["endpoint_url"] = redirect_address(kwargs["endpoint_url"])
        return create_client(*args, **kwargs)

    return wrapper


def _hide_profile_variable(get_config_variable: Callable) -> Callable:
    """Wrap ``get_config_variable``, so that no profile is set while the emulator is used."""

    def wrapper(session: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "profile" and os.environ.get("AWS_ENDPOINT_URL"):
            return None
        return get_config_variable(session, name, *args, **kwargs)

    return wrapper


def _hide_profile(instance_variables: Callable) -> Callable:
    """Wrap ``instance_variables``, so that no profile is set while the emulator is used."""

    def wrapper(session: Any) -> Any:
        variables = instance_variables(session)
        if os.environ.get("AWS_ENDPOINT_URL"):
            variables.pop("profile", None)  # ``variables`` is a copy
        return variables

    return wrapper


WRAPPERS = {
    "create_client": _redirect_client,
    "get_config_variable": _hide_profile_variable,
    "instance_variables": _hide_profile,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Hook the modules in ``_SESSION_MODULES`` when the program imports them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module in ``_SESSION_MODULES``, and hook its loader; else None."""
        if name not in _SESSION_MODULES:
            return None
        # Ask only the finder of paths, because all finders together would call this one again.
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            _hook_loader(spec.loader)
        return spec


def _hook_loader(loader: Any) -> None:
    """Make the loader call :func:`wrap_session_methods` after it has executed a module."""
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        wrap_session_methods(module)

    loader.exec_module = exec_module


def _run_hidden_sitecustomize() -> None:
    """Run the ``sitecustomize`` that this one hides, if there is one."""
    folder = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path) != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec and spec.loader:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":  # at the start of an interpreter, not when a test imports it
    sys.meta_path.insert(0, _Finder())
    _run_hidden_sitecustomize()
