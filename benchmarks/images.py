"""Compare each job of a recipe with what AWS publishes of its images.

python -m benchmarks.images [--recipe recipes/prod.yaml] [--json images.json]

For each image and each step that installs packages: those of the lock that the image has at that
version, replaces, and adds, those whose version AWS does not publish, what then conflicts, and what
breaks the job. Steps that install the same packages share a row.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import CHECKOUT, JsonFile, keep, show_table
from pipelines.compile.compilation import WITH_WORKLOAD, step_code
from pipelines.compile.package_lock import Entry, compare, read
from pipelines.recipe.read_recipe import load
from trainyard.image_packages import published_images

COUNTED = ("has", "replacements", "additions", "not_published")


def installed(recipe_file: Path) -> dict[str, tuple[Entry, ...]]:
    """Steps, joined by commas when they install the same → what they install."""
    recipe = load(recipe_file)
    steps: dict[tuple[Entry, ...], list[str]] = {}
    for step in WITH_WORKLOAD:
        further = recipe.train.packages if step == "train" else ()
        wanted = (*further, *recipe.workload_spec.packages)
        text = step_code(CHECKOUT, step, None, wanted)["requirements.txt"].decode()
        steps.setdefault(read(text, step), []).append(step)
    return {", ".join(names): entries for entries, names in steps.items()}


def rows(recipe_file: Path) -> list[dict[str, Any]]:
    """What is found of each image and each group of steps."""
    found: list[dict[str, Any]] = []
    groups = installed(recipe_file)
    for name, image in published_images().items():
        for steps, entries in groups.items():
            row: dict[str, Any] = {"image": name, "steps": steps, "python": None}
            if image:
                told = compare(entries, image)
                row |= {"python": image.python, "source": image.source}
                row |= {kind: getattr(told, kind) for kind in (*COUNTED, "conflicts", "broken")}
                if "torch" not in image.packages:
                    row["broken"] = [*told.broken, "no torch for train and evaluate"]
            found.append(row)
    return found


def _line(row: dict[str, Any]) -> list[object]:
    if row["python"] is None:
        return [row["image"], row["steps"], "", "", "", "", "", "not published"]
    counts = [len(row[kind]) for kind in COUNTED]
    said = [f"breaks: {_short(row['broken'])}"] if row["broken"] else []
    said += [f"conflicts: {_short(row['conflicts'])}"] if row["conflicts"] else []
    said += [f"replaces {', '.join(row['replacements'])}"] if row["replacements"] else []
    return [row["image"], row["steps"], row["python"], *counts, "; ".join(said)]


def _short(found: list[str]) -> str:
    more = f" and {len(found) - 2} more" if len(found) > 2 else ""
    return ", ".join(found[:2]) + more


def main(
    recipe: Annotated[Path, typer.Option(help="the recipe")] = CHECKOUT / "recipes/prod.yaml",
    json_file: JsonFile = None,
) -> None:
    """Print the table."""
    found = rows(recipe)
    columns = ("image", "steps", "Python", "has", "replaces", "adds", "unknown", "what")
    show_table(columns, map(_line, found), width=160)
    keep(json_file, found)


if __name__ == "__main__":
    typer.run(main)
