"""The section packages: what is refused, and what pip is told in a job."""

import pytest

from pipelines.recipe.read_recipe import load
from pipelines.recipe.sections import Packages
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

ARN = "arn:aws:codeartifact:us-east-1:123456789012:repository/corp/pypi"
LAPTOP = CHECKOUT / "recipes/laptop.yaml"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{index: 'https://me:secret@pypi.example.com/simple'}", "packages.index: is 'https://…@"),
        ("{index: 'http://pypi.example.com/simple'}", "expected https://HOST/PATH"),
        ("{index: 'https://pypi.example.com/simple?token=1'}", "expected https://HOST/PATH"),
        ("{index: 'https://h/simple', wheelhouse: true}", "ask no index; remove one of them"),
        (
            "{wheelhouse: true, python: [3.12]}",
            "packages.python.0: is 3.12; expected text like",
        ),
        ("{wheelhouse: true, python: ['py312']}", "packages.python.0: is 'py312'; expected"),
        ("{codeartifact: corp/pypi}", "packages.codeartifact"),
        (
            f"{{codeartifact: '{ARN}', wheelhouse: true}}",
            "codeartifact: jobs with a wheelho",
        ),
        (f"{{codeartifact: '{ARN}', index: 'https://h/s'}}", "codeartifact is one, too; remove"),
        ("{python: ['3.12']}", "python: is used with wheelhouse: true only"),
    ],
)
def test_what_no_job_could_use_is_refused(given: str, said: str):
    with pytest.raises(RecipeError) as refused:
        load(LAPTOP, [f"packages={given}"])
    assert said in str(refused.value) and "secret" not in str(refused.value)


def test_pip_is_told_of_one_source():
    assert Packages().environment("/w") == {}
    assert Packages(index="https://h/simple").environment("/w") == {
        "PIP_INDEX_URL": "https://h/simple"
    }
    assert Packages(codeartifact=ARN).environment("/w") == {"CA_REPOSITORY_ARN": ARN}
    house = Packages(wheelhouse=True).environment("/w")
    assert house == {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/w"}


def test_a_channel_of_the_users_own_may_not_have_the_wheels_name():
    recipe = CHECKOUT / "tests/somebodys/recipe.yaml"
    sets = ["packages={wheelhouse: true}", "train.channels={wheels: s3://bucket/x}"]
    with pytest.raises(RecipeError, match="train.channels.wheels: packages.wheelhouse has a"):
        load(recipe, sets)
