"""Prepare what scores a champion of another pipeline: a table, or the folder of its script."""

from pathlib import Path

from pipelines.compile.compile_session import CompileSession
from pipelines.compile.user_code import MB, project_of
from pipelines.recipe.champion_section import Champion
from pipelines.recipe.config import Recipe
from steps.evaluate.champion_table import read_table
from steps.evaluate.step import Outside
from steps.evaluate_script.script_scoring import check_table
from steps.train.train_script import Project
from training.workloads import load_packing
from trainyard.common.errors import DataError, DefinitionError

LARGEST_MB = 100
"""Maximum size of a table beside the recipe: it is uploaded with the code."""


def champion_of(
    recipe: Recipe, home: Path, session: CompileSession
) -> tuple[Outside | None, Project | None]:
    """Return the champion of the recipe's section ``champion``, and its script's folder.

    Args:
        home: the recipe's folder.

    Raises:
        DefinitionError: a file is missing or too large, or the table's rows are wrong.
    """
    champion = recipe.champion
    if champion is None:
        return None, None
    if champion.scores is not None:
        return Outside(champion.model_package, _table(recipe, champion.scores, home, session)), None
    project = project_of(champion, "champion", home)
    assert project is not None  # noqa: S101 (the section has a script)
    folder = session.add(dict(project.files))
    words = _script(champion, project.script)
    return Outside(champion.model_package, None, folder, words, project.requirements), project


def _script(champion: Champion, entry: str) -> list[str]:
    columns = ["--outside_columns", *champion.columns] if champion.columns else []
    return ["--outside_script", entry, "--outside_type", champion.content_type, *columns]


def _table(recipe: Recipe, scores: str, home: Path, session: CompileSession) -> str:
    """Return the table's URI; a file is checked, and added to what is uploaded."""
    if scores.startswith("s3://"):
        return scores
    path = home / scores
    if not path.is_file():
        raise DefinitionError(
            f"champion.scores: {path} is not a file; it is relative to the recipe, or an S3 URI"
        )
    if (size := path.stat().st_size) > LARGEST_MB * MB:
        raise DefinitionError(
            f"champion.scores: {path} has {size / MB:.0f} MB, and {LARGEST_MB} MB at most travel "
            "with the code; upload it, and give its S3 URI"
        )
    try:
        if recipe.train.loop is None:
            compared = {m for margins in recipe.gate.comparisons.values() for m in margins}
            check_table(path, recipe.evaluate.metrics, sorted(compared))
        else:
            read_table(path, load_packing(recipe.workload.name, recipe.workload.config))
    except DataError as error:
        raise DefinitionError(f"champion.scores: {error}") from None
    return session.add({path.name: path.read_bytes()})
