"""Packages that a job's script imports and the interpreter lacks, reported before the job starts.

They are only reported: a script may install a package itself before it imports it, and AWS's
drivers install what requirements.txt names. Only imports that always happen when a script starts
are examined, not those in functions or in ``try``: in the script, and in the modules that it
imports from its folder or from one above.
"""

import ast
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from trainyard.emulator.runtime.interpreter import find_modules
from trainyard.emulator.runtime.isolation import keep_bytecode
from trainyard.emulator.runtime.node import Node

_SCRIPT = re.compile(r"/opt/ml/[\w./-]+\.py\b")
_SDK = "/opt/ml/input/data/sm_drivers/sourcecode.json"
"""File in which the SageMaker SDK v3 names the script that its driver starts."""

_PARSING = threading.Lock()
"""Lock around parsing: CPython 3.11 counts the depth of a tree for all threads at once, and two
that parse at the same time may end in a SystemError."""


def import_warnings(node: Node) -> list[str]:
    """Return one line for each of the node's scripts that imports a missing package.

    Of packages that are there, bytecode is made where it is missing.
    """
    lines = []
    for script in _scripts(node):
        roots = [path for path in script.parents if path.is_relative_to(node.ml)]
        wanted = _imports(script, roots)
        if not wanted:
            continue
        missing, uncompiled = find_modules(node.python, wanted)
        keep_bytecode(node.python, uncompiled)
        if missing:
            lines.append(
                f"{script.name} imports {', '.join(missing)}, which {node.python} lacks: install "
                "it there, or name an interpreter that has it with --python PATH"
            )
    return lines


def _scripts(node: Node) -> Iterator[Path]:
    """Iterate over the Python files in the job's command that have no requirements.txt beside
    them.
    """
    named = _SCRIPT.findall(" ".join(node.command))
    if (about := node.inside(_SDK)).is_file():
        source = json.loads(about.read_text())
        if source.get("entry_script") and not source.get("requirements"):
            named.append(f"/opt/ml/input/data/code/{source['entry_script']}")
    for path in dict.fromkeys(named):
        script = node.inside(path)
        if script.is_file() and not script.with_name("requirements.txt").is_file():
            yield script


def _imports(script: Path, roots: list[Path]) -> set[str]:
    """Return the script's top-level imports from outside the standard library and ``roots``."""
    found, seen, queue = set(), set(), [script]
    while queue:
        module = queue.pop()
        seen.add(module)
        for name in _imported(module):
            local = [path for root in roots for path in (root / f"{name}.py", root / name)]
            if local := [path for path in local if path.exists()]:
                files = [path / "__init__.py" if path.is_dir() else path for path in local]
                queue += [path for path in files if path.is_file() and path not in seen]
            elif name not in sys.stdlib_module_names:
                found.add(name)
    return found


def _imported(module: Path) -> Iterator[str]:
    """Iterate over the names of packages that are always imported with ``module``."""
    try:
        with _PARSING:
            tree = ast.parse(module.read_bytes())
    except (SyntaxError, ValueError):  # the job itself will report it
        return
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
