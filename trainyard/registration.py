"""Registration by importing: what a module declares is in its table once the module is imported."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import iter_modules


def import_modules(package: str, path: Iterable[str], first: Sequence[str] = ()) -> None:
    """Import every module of ``package``, which lies at ``path``: those of ``first``, then by name.

    Raises:
        ModuleNotFoundError: there is no module of a name in ``first``.
    """
    others = sorted(found.name for found in iter_modules(path) if found.name not in first)
    for name in (*first, *others):
        import_module(f"{package}.{name}")
