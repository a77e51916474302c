"""The recipe of examples/llama compiles, and what its scripts import travels with them."""

from pathlib import Path

import pytest

from pipelines import definition
from tests.conftest import CHECKOUT

RECIPE = CHECKOUT / "examples/trainer.yaml"
SCRIPTS = ("with_trainer.py", "with_accelerate.py", "with_lightning.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_training_and_evaluation_find_the_reader_of_the_shards(script: str):
    compiled = definition.from_recipe(RECIPE, [f"train.script=llama/{script}"])
    folders = [asset.files for asset in compiled.assets if "llama.py" in asset.files]
    assert len(folders) >= 1
    for files in folders:
        wanted = {"evaluate.py", "training/data/torch_dataset.py", "trainyard/common/errors.py"}
        assert wanted <= files.keys()


def test_each_script_is_in_the_folder():
    assert {path.name for path in Path(RECIPE.parent / "llama").glob("with_*.py")} == {*SCRIPTS}
