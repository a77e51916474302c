"""Import all modules of a package whose modules register something when they are imported.

This is a separate module because it is all that packages with such plug-ins have in common.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import iter_modules


def import_modules(package: str, path: Iterable[str], first: Sequence[str] = ()) -> None:
    """Import every module of ``package``.

    Args:
        package: name of the package.
        path: its ``__path__``.
        first: modules to import first, in this order; the others follow in the order of names.

    Raises:
        ModuleNotFoundError: a name in ``first`` is not a module of the package.
    """
    others = sorted(
        module_info.name for module_info in iter_modules(path) if module_info.name not in first
    )
    for name in (*first, *others):
        import_module(f"{package}.{name}")
