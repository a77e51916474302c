"""The rules: each module's ``RULE``, under the module's name.

A rule is a pure function of the lines that rank 0 has logged. A new module is found automatically,
and the recipe enables or disables it by its name. A rule is kept only if a run of this project has
triggered it for a real reason.
"""

from importlib import import_module
from pkgutil import iter_modules

from training.watching.watch_rule import Rule

RULES: dict[str, Rule] = {
    info.name: import_module(f"{__name__}.{info.name}").RULE
    for info in sorted(iter_modules(__path__), key=lambda module: module.name)
}
"""Mapping of name to rule, sorted by name."""
