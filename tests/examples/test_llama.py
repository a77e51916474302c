"""The recipes of examples/llama compile, and what its scripts import travels with them."""

import pytest

from pipelines import definition
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.long

EXAMPLES = CHECKOUT / "examples"
RECIPES = ("trainer", "accelerate", "lightning")


@pytest.mark.parametrize("name", RECIPES)
def test_training_and_evaluation_find_the_reader_of_the_shards(name: str):
    scripts = {path.stem for path in (EXAMPLES / "llama").glob("with_*.py")}
    assert scripts == {f"with_{each}" for each in RECIPES}
    compiled = definition.from_recipe(EXAMPLES / f"{name}.yaml")
    assert f"with_{name}.py" in compiled.body
    folders = [asset.files for asset in compiled.assets if "llama.py" in asset.files]
    assert folders
    for files in folders:
        wanted = {"evaluate.py", "training/data/torch_dataset.py", "trainyard/common/errors.py"}
        assert wanted <= files.keys()
