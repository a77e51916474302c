"""What a recipe trains, as foresight is asked about it: its sizes by formula, or traced."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.advising import kept
from pipelines.foreseeing import LANGUAGE, model_of, numbers_of, refuse_traced
from pipelines.recipe.config import Recipe
from trainyard.common.errors import ForesightError
from trainyard.foresight import shapes as shapes_of
from trainyard.foresight.shapes import Shapes

SHOWN = 300  # characters of what a process complained of


@dataclass(frozen=True, slots=True)
class Trained:
    """What is trained, whichever machines do it."""

    fields: dict[str, Any]
    """Of a setting."""

    shapes: Shapes | None
    """None: by formula from the fields."""

    assumed: tuple[str, ...]


def trained(recipe: Recipe, path: Path, data: Path | None) -> Trained:
    """What the recipe in ``path`` trains.

    Args:
        data: a folder of shards of the train split, for a workload that must see some.

    Raises:
        ForesightError: it cannot be foreseen; says why.
    """
    if recipe.train.loop is None or recipe.workload.name == LANGUAGE:
        fields, assumed = model_of(recipe)
        return Trained(fields, None, assumed)
    of = _of(recipe)
    read = shapes_of.read(_traced(recipe, path, of.precision, data))
    loop = recipe.train.loop
    fields = {
        "precision": of.precision,
        "compile": loop.compile,
        "deepspeed": loop.strategy == "deepspeed",
    }
    return Trained({**shapes_of.widths(read), **fields}, read, ())


def keep(recipe: Recipe, path: Path, data: Path | None) -> Path:
    """Trace the recipe's model and keep its shapes, for plan, validate, budget and watch; the file.

    Raises:
        ForesightError: it cannot be traced, or needs no tracing; says why.
    """
    if recipe.train.loop is None or recipe.workload.name == LANGUAGE:
        model_of(recipe)
        raise ForesightError("--trace: the language model is foreseen by formula; leave it out")
    of = _of(recipe)
    return kept.keep(of, _traced(recipe, path, of.precision, data))


def _of(recipe: Recipe) -> kept.Of:
    """What is to be traced of a recipe with a loop."""
    loop, tuning = recipe.train.loop, recipe.train.tuning
    assert loop is not None  # noqa: S101 (who calls has looked)
    precision = numbers_of(loop, tuning)["precision"]
    refuse_traced(recipe.workload.name, tuning, precision)
    told = recipe.workload_config.model_dump(mode="json")
    return kept.Of(recipe.workload.name, told, precision)


def _traced(recipe: Recipe, path: Path, precision: str, data: Path | None) -> dict[str, Any]:
    """What ``python -m training.shapes`` prints: in a process of its own, since it needs torch."""
    command = [sys.executable, "-m", "training.shapes", "--workload", recipe.workload.name]
    command += ["--workload-config", json.dumps(recipe.workload.config), "--precision", precision]
    command += ["--data", str(data)] if data else []
    source = recipe.workload.source
    places = [str((path.parent / source).resolve())] if source else []
    search = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(  # noqa: S603 (our own module; no shell)
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": search},
    )
    if ended.returncode:
        why = " ".join(ended.stderr.split())[-SHOWN:]
        seen = (
            ""
            if data
            else "; a workload that must see data needs --data, shards of its train split"
        )
        raise ForesightError(f"python -m training.shapes could not trace the model: {why}{seen}")
    return json.loads(ended.stdout)
