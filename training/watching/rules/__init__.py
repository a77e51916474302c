"""The rules: each module's ``RULE``, under the module's name.

A rule is a pure function of the lines that rank 0 has logged; a new module is found by itself, and
the recipe switches it by its name. It stays only if a run here has fired it for a true reason.
"""

from importlib import import_module
from pkgutil import iter_modules

from training.watching.watch_rule import Rule

RULES: dict[str, Rule] = {
    info.name: import_module(f"{__name__}.{info.name}").RULE
    for info in sorted(iter_modules(__path__), key=lambda module: module.name)
}
"""Name → rule, sorted by name."""
