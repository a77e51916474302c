"""Register by importing: a module's declarations are in its table once the module is imported.

Apart: it is all that plug-in rooms share.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import iter_modules


def import_modules(package: str, path: Iterable[str], first: Sequence[str] = ()) -> None:
    """Import every module of ``package``, which lies at ``path``: ``first``, then by name.

    Raises:
        ModuleNotFoundError: a name in ``first`` is not a module.
    """
    others = sorted(
        module_info.name for module_info in iter_modules(path) if module_info.name not in first
    )
    for name in (*first, *others):
        import_module(f"{package}.{name}")
