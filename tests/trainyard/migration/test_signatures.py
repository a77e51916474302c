"""Each name and call of a moved script is held against the SDK v3 that is installed."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.migration.facts import MODULES, NAME_MODULES
from trainyard.migration.rewriting import migrate_script
from trainyard.migration.signatures import UNPACKED_REASON, check_signatures

pytestmark = pytest.mark.slow

MODEL = "from sagemaker.model import Model\nm = Model(image_uri='i', role='r')\n"
STEP = "from sagemaker.workflow.model_step import ModelStep\n"


def unfit(source: str) -> list[str]:
    """Return what does not fit of a script of SDK v2, once it is moved."""
    moved = migrate_script(source)
    assert not moved.remaining, moved.remaining
    return [
        f"{call.construct}: {call.reason}"
        for call in check_signatures(moved.code, OWN_PYTHON).unfit
    ]


def test_calls_that_sdk_v3_would_refuse_are_named():
    argument, missing, method, unpacked, chain, name = unfit(
        f"{MODEL}{STEP}s = ModelStep(name='M', step_args=m.create())\n"
        "ModelStep(name='M', step_args=1, model=m)\n"
        "ModelStep(name='M')\n"
        "from sagemaker.workflow.pipeline import Pipeline\n"
        "p = Pipeline(name='P')\np.upsert_all()\nPipeline(**settings)\n"
        "from sagemaker.train import ModelTrainer\n"
        "s = ModelTrainer(role='r').train(inputs=1)\n"
        "from sagemaker.core.image_uris import retrieve, retrieve_no_more\n"
    )
    assert argument.startswith("ModelStep: it has no argument model; it takes name, step_args, ")
    assert missing.startswith("ModelStep: missing a required argument: 'step_args'; it takes")
    assert method == "p.upsert_all: SDK v3's Pipeline has no upsert_all"
    assert unpacked == f"Pipeline: {UNPACKED_REASON}"  # not compared
    assert chain.startswith("ModelTrainer(role='r').train: it has no argument inputs; it takes")
    assert name.startswith("import of sagemaker.core.image_uris.retrieve_no_more: SDK v3 has no")


def test_without_sdk_v3_nothing_is_compared(tmp_path: Path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    calls = check_signatures(migrate_script(MODEL).code, tmp_path / "bare/bin/python")
    assert (calls.sdk, calls.calls > 0, calls.unfit) == ("", True, ())
    assert check_signatures("print(1)\n", Path(sys.executable)).calls == 0


_IMPORTS = """
import importlib, json, sys
for name, module in json.loads(sys.argv[1]):
    try:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
    except ImportError:
        print(f"{module}.{name}")
"""


def test_each_name_that_a_moved_script_may_import_exists():
    modules = [(name, module) for module, _, name in (m.rpartition(".") for m in MODULES.values())]
    names = json.dumps([*NAME_MODULES.items(), *modules])
    env = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}
    command = [OWN_PYTHON, "-c", _IMPORTS, names]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (found.stdout, found.returncode) == ("", 0), found.stderr[-2000:]
