"""Create and upload the raw data of an example recipe.

python -m pipelines.corpus --recipe recipes/laptop.yaml

``data.example`` names a module of ``pipelines.corpora``; its data is uploaded to ``data.input``.
Each of ``data.inputs`` may name another module.
"""

from importlib import import_module
from urllib.parse import urlsplit

from pipelines.corpora import Corpus
from pipelines.delivery.pipeline_objects import ensure_bucket, upload_changed_files
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import find_account, refuse_other_caller, resolve_account
from pipelines.recipe.read_recipe import load_recipe
from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import RecipeError
from trainyard.terminal import console, run


def main(
    recipe: RecipeOption, overrides: SetOption = NOT_GIVEN, environment: EnvOption = None
) -> None:
    """Upload the example data that the recipe names as its raw data."""
    recipe_config = load_recipe(recipe, overrides, environment)
    if recipe_config.data is None or recipe_config.data.shards:
        why = "is not set" if recipe_config.data is None else "names shards, no raw data"
        raise RecipeError(f"{recipe}: data: {why}, so there is nothing to upload")
    if not recipe_config.data.examples:
        prefixes = [recipe_config.data.input, *recipe_config.data.prefixes.values()]
        raise RecipeError(
            f"{recipe}: data.example: is not set, so the raw data is your own; "
            f"upload it to {', '.join(filter(None, prefixes))}"
        )
    refuse_other_caller(find_account(recipe_config.aws, environment), recipe_config.aws.region)
    for uri, example in recipe_config.data.examples:
        _upload_example(recipe_config, uri, example)


def _upload_example(recipe: Recipe, uri: str, example: str) -> None:
    """Build the example data and upload it to ``uri``; print how much was uploaded."""
    region, location = resolve_account(recipe.aws).region, urlsplit(uri)
    corpus: Corpus = import_module(f"pipelines.corpora.{example}").build()
    s3 = create_client("s3", region)
    with service_errors("uploading the corpus"):
        ensure_bucket(s3, location.netloc, region)
        byte_count = upload_changed_files(
            s3, location.netloc, location.path.strip("/"), corpus.files, kms_key=recipe.aws.kms_key
        )
    size = sum(map(len, corpus.files.values()))
    console.print(
        f"corpus {uri}: {corpus.note}; {len(corpus.files)} objects, {size / 1e6:.1f} MB, "
        + (f"{byte_count / 1e6:.1f} MB uploaded" if byte_count else "unchanged")
    )


if __name__ == "__main__":
    run(main)
