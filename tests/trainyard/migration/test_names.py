"""Each name that a moved script may import is one of the installed SDK v3."""

import json
import os
import subprocess

import pytest

from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.migration.facts import MODULES, NAME_MODULES

_IMPORTS = """
import importlib, json, sys
for name, module in json.loads(sys.argv[1]):
    try:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
    except ImportError:
        print(f"{module}.{name}")
"""


@pytest.mark.long
def test_each_name_exists():
    modules = [(name, module) for module, _, name in (m.rpartition(".") for m in MODULES.values())]
    names = json.dumps([*NAME_MODULES.items(), *modules])
    env = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}
    command = [OWN_PYTHON, "-c", _IMPORTS, names]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (found.stdout, found.returncode) == ("", 0), found.stderr[-2000:]
