"""AWS's images, by the SDK's table, and what trains under each; retries in the SDK's words."""

from pathlib import Path
from typing import get_args

import pytest
from sagemaker.core import image_uris

from pipelines.compile.compile_session import choose_inference_image, choose_training_image
from pipelines.recipe.config import Recipe, Retry
from pipelines.recipe.read_recipe import load_recipe
from training.strategy_table import OLDEST_TORCH, parse_release
from trainyard.common.errors import RecipeError
from trainyard.language.retries import CAUSES, WORDS

PROD = Path("recipes/prod.yaml")
REGION = "us-east-1"
TRAINING = image_uris.config_for_framework("pytorch")["training"]["versions"]
VERSIONS = [version for version, one in TRAINING.items() if one["py_versions"][-1] >= "py311"]
PIPELINE = ("train.loop.compile=false", "train.loop.shard_degree=0",
            "train.loop.pipeline_parallel=2", "train.loop.micro_batch=1")  # fmt: skip
FLOAT8 = ("train.loop.float8=tensorwise", "train.instance_type=ml.p5.48xlarge")


MIRROR = "111122223333.dkr.ecr.us-east-1.amazonaws.com/mirror"


def test_the_session_is_imported_where_no_region_is_set(run_python):
    done = run_python("-c", "import pipelines.compile.compile_session")
    assert done.returncode == 0, done.stderr


def test_each_image_has_its_own_python_and_the_defaults_are_the_newest_that_the_sdk_knows():
    recipe = load_recipe(PROD)
    assert "/pytorch-training:2.10.0-gpu-py313" in choose_training_image(recipe, REGION)
    assert "/pytorch-inference:2.6.0-gpu-py312" in choose_inference_image(recipe, REGION)
    older = load_recipe(PROD, ["images.pytorch_version=2.8.0", "images.inference_version=2.5.1"])
    assert "/pytorch-training:2.8.0-gpu-py312" in choose_training_image(older, REGION)
    assert "/pytorch-inference:2.5.1-gpu-py311" in choose_inference_image(older, REGION)
    inference = image_uris.config_for_framework("pytorch")["inference"]["versions"]
    assert recipe.images.pytorch_version == max(TRAINING, key=parse_release)
    assert recipe.images.inference_version == max(inference, key=parse_release)


def test_a_registry_of_ones_own_has_awss_images_under_their_names():
    """An image that the recipe names itself stays where it is."""
    plain, mirrored = load_recipe(PROD), load_recipe(PROD, [f"images.registry={MIRROR}"])
    for image in (choose_training_image, choose_inference_image):
        name = image(plain, REGION).partition("/")[2]
        assert image(mirrored, REGION) == f"{MIRROR}/{name}"
    own = load_recipe(PROD, [f"images.registry={MIRROR}", "images.training=example.com/mine:1"])
    assert choose_training_image(own, REGION) == "example.com/mine:1"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("pytorch_version=2.11.0", "images.pytorch_version: is '2.11.0'; .* 2.9.0, 2.10.0: choose"),
        ("python_version=py312", "images.python_version: is 'py312'; AWS's PyTorch 2.10.0 training "
         "image has py313: set it"),
        ("inference_version=2.8.0", "images.inference_version: is '2.8.0'; .* 2.6.0: choose"),
        ("inference_version=2.2.0", "images.inference_version: is '2.2.0'; .* Python 3.11"),
        ("inference_python_version=py313", "images.inference_python_version: is 'py313'; .* py312"),
    ],
)  # fmt: skip
def test_an_image_that_aws_does_not_have_is_named_with_those_it_has(override, expected):
    recipe = load_recipe(PROD, [f"images.{override}"])
    with pytest.raises(RecipeError, match=expected):
        choose_training_image(recipe, REGION)
        choose_inference_image(recipe, REGION)


def is_version_accepted(version: str, *overrides: str) -> bool:
    try:
        load_recipe(PROD, [f"images.pytorch_version={version}", *overrides])
    except RecipeError as error:
        assert f"images.pytorch_version: is '{version}'" in str(error)
        return False
    return True


def test_a_recipe_passes_with_just_the_images_under_which_it_trains():
    """The training's tests run what passes here under the images' torch: make test-torch."""
    for version in VERSIONS:
        assert is_version_accepted(version, *PIPELINE) == (
            parse_release(version) >= parse_release(OLDEST_TORCH)
        )
        assert is_version_accepted(version, *FLOAT8) == (parse_release(version) >= (2, 10, 0))


def test_an_image_of_ones_own_is_left_to_the_job_and_aws_s_is_not():
    own = "111122223333.dkr.ecr.us-east-1.amazonaws.com/own:2.8.0"
    load_recipe(PROD, [*FLOAT8, f"images.training={own}"])
    aws = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312"
    with pytest.raises(RecipeError, match="images.training: is .*tensorwise needs"):
        load_recipe(PROD, [*FLOAT8, f"images.training={aws}"])


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch):
    """The SDK asks for one when it is imported."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_the_sdk_has_the_same_causes_on_the_same_sides():
    from sagemaker.mlops.workflow import retry

    of_jobs = {cause.name for cause in CAUSES.values() if cause.is_job_failure}
    assert of_jobs == {member.value for member in retry.SageMakerJobExceptionTypeEnum}
    assert set(CAUSES) - of_jobs == {member.value for member in retry.StepExceptionTypeEnum}


def test_a_recipe_may_say_every_word_and_each_is_compiled():
    from pipelines.compile.compile_session import build_retry_policies

    words = get_args(get_args(Retry.model_fields["causes"].annotation)[0])
    assert set(words) == set(WORDS)
    recipe = Recipe.model_construct(retry=Retry(max_attempts=2, causes=words))
    compiled = [
        name for p in build_retry_policies(recipe) for name in p.to_request()["ExceptionType"]
    ]
    assert sorted(compiled) == sorted(CAUSES)
