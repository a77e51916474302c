"""A wheelhouse's name follows from the requirements, with the files that these include."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.compile.compilation import Requirements, Wheelhouse
from pipelines.compile.compile_session import list_job_pythons
from pipelines.definition import from_recipe
from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT
from trainyard.common.errors import DefinitionError, RecipeError

LAPTOP = CHECKOUT / "recipes/laptop.yaml"
FILES = {"requirements.txt": b"-r more/base.txt\nhappy==1\n",
         "more/base.txt": b"-c limits.txt\nsad==2\n", "more/limits.txt": b"sad<3\n",
         "train.py": b""}  # fmt: skip

SOME = st.dictionaries(st.sampled_from(["requirements.txt", "b.txt"]), st.binary(max_size=9))


def house(files: dict[str, bytes], python: str = "3.12") -> Wheelhouse:
    of = Requirements.from_folder("requirements.txt", files)
    return Wheelhouse("bkt", "code/wheels", (of,), (python,))


def test_files_that_are_included_count_and_others_do_not():
    key = house(FILES).key
    assert {*house(FILES).lists[0].files} == {*FILES} - {"train.py"}
    assert house(FILES | {"train.py": b"x"}).key == key
    assert house(FILES | {"more/limits.txt": b"sad<4\n"}).key != key
    assert house(FILES, "3.11").key != key
    assert house(FILES).manifest == f"{key}.json"  # beside the folder, which a job gets whole
    with pytest.raises(DefinitionError, match=r"include more/base.txt, which is not in the script"):
        house({"requirements.txt": FILES["requirements.txt"]})


@given(SOME, SOME)
def test_different_texts_have_different_names(one, other):
    texts = [Wheelhouse("b", "p", (Requirements("r", files),), ()) for files in (one, other)]
    assert (texts[0].key == texts[1].key) == (one == other)


def test_an_image_of_the_users_own_needs_its_python():
    sets = ["packages={wheelhouse: true}"]
    assert list_job_pythons(load_recipe(LAPTOP, sets)) == ("3.13",)
    own = ["images.training=example.com/mine:1"]
    with pytest.raises(RecipeError, match="packages.python: is missing, and images.training is"):
        list_job_pythons(load_recipe(LAPTOP, [*sets, *own]))
    known = ["packages={wheelhouse: true, python: ['3.11']}", *own]
    assert list_job_pythons(load_recipe(LAPTOP, known)) == ("3.11",)


def test_each_job_gets_the_wheels_of_its_requirements_and_asks_no_index():
    compiled = from_recipe(LAPTOP, ["packages={wheelhouse: true}", "aws.network_isolation=true"])
    keys = [house.uri for house in compiled.wheelhouses]
    assert len(keys) == 2  # shard, train and evaluate need the same, the gate needs less
    jobs = [step["Arguments"] for step in json.loads(compiled.body)["Steps"]
            if step["Type"] in ("Processing", "Training")]  # fmt: skip
    assert len(jobs) == 4
    for job in jobs:
        folder = job["Environment"]["PIP_FIND_LINKS"]
        assert job["Environment"]["PIP_NO_INDEX"] == "1"
        if "InputDataConfig" in job:
            [channel] = [c for c in job["InputDataConfig"] if c["ChannelName"] == "wheels"]
            uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
            assert folder == "/opt/ml/input/data/wheels"
        else:
            [given] = [i for i in job["ProcessingInputs"] if i["InputName"] == "wheels"]
            uri = given["S3Input"]["S3Uri"]
            assert folder == given["S3Input"]["LocalPath"]
        assert uri in keys
