"""Store the shapes of traced models with the recipes; plan, validate, budget and watch read them.

``python -m pipelines.advise --recipe R --trace`` writes a file for the recipe's workload, its
settings and the precision; a prediction uses the file for exactly these. A file whose code has
changed since is refused, so that its shapes are never used for another model.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainyard.common import atomic_file
from trainyard.common.errors import ForesightError, TrainingError
from trainyard.foresight import model_shapes
from trainyard.foresight.transformer_formulas import Shapes

FOLDER = Path("recipes/shapes")
"""Folder of the files, relative to the working directory; commit it with the recipes."""

TRACE_COMMAND = "python -m pipelines.advise --recipe RECIPE --trace [--data SHARDS]"
WORKLOADS_PACKAGE = "training.workloads"


class StaleShapes(ForesightError):
    """Raised for a file of shapes that is for exactly this workload, but must not be used.

    The code has changed since, or the file is damaged.
    """


@dataclass(frozen=True, slots=True)
class ShapesKey:
    """Key of traced shapes: the workload, its settings and the precision.

    It is the same whether it comes from a job or from a recipe.
    """

    workload: str
    config: Mapping[str, Any]
    """All settings of the workload, defaults included."""

    precision: str
    """``bf16``, ``fp16`` or ``fp32``."""

    @property
    def path(self) -> Path:
        """Path of the file that contains the shapes."""
        digest = hashlib.sha256(json.dumps(self.as_json, sort_keys=True).encode()).hexdigest()
        return FOLDER / f"{self.workload}-{digest[:12]}.json"

    @property
    def as_json(self) -> dict[str, Any]:
        """The key as it is stored in the file."""
        return {"workload": self.workload, "config": self.config, "precision": self.precision}


def store_shapes(shapes_key: ShapesKey, tree: Mapping[str, Any]) -> Path:
    """Write the traced shapes with their key; return the path of the file.

    Args:
        shapes_key: key of the shapes.
        tree: the shapes as ``python -m training.tools.shapes`` prints them.

    Raises:
        ForesightError: the file cannot be written.
    """
    key = {**shapes_key.as_json, "code": hash_workload_code(shapes_key.workload)}
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        atomic_file.write_file(shapes_key.path, json.dumps({"of": key, **tree}, indent=1) + "\n")
    except OSError as error:
        raise ForesightError(f"{shapes_key.path}: cannot be written: {error}") from None
    return shapes_key.path


def find_shapes(shapes_key: ShapesKey) -> tuple[Shapes, tuple[str, ...]]:
    """Return the stored shapes of exactly this workload, and the assumptions made about them.

    Raises:
        ForesightError: there is no such file; the message says how to write one.
        StaleShapes: the file is for other code, or is damaged.
    """
    path = shapes_key.path
    if not path.exists():
        raise ForesightError(
            f"the shapes of workload {shapes_key.workload}'s model, with these settings, are not "
            f"known; trace it: {TRACE_COMMAND}"
        )
    tree = _read_shapes_file(path)
    key = tree.get("of")
    code = hash_workload_code(shapes_key.workload)
    if not isinstance(key, dict) or {**key, "code": None} != {**shapes_key.as_json, "code": None}:
        raise StaleShapes(f"{path}: its settings do not match its name; {_advise_retrace()}")
    if code is not None and code != key.get("code"):
        raise StaleShapes(
            f"{path}: the code of workload {shapes_key.workload} has changed since its model was "
            f"traced; {_advise_retrace()}"
        )
    try:
        shapes = model_shapes.parse_shapes(tree)
    except TrainingError as error:
        raise StaleShapes(f"{path}: {error}; {_advise_retrace()}") from None
    unseen = (
        f"the code of workload {shapes_key.workload}, which is not installed here, to be the code "
        f"that was traced for {path}"
    )
    return shapes, () if code is not None else (unseen,)


def hash_workload_code(workload: str) -> str | None:
    """Return a hash of all modules in the folder of the workload's package.

    It identifies the workload's code. Return None if the workload is not on Python's path.
    """
    try:
        module_spec = find_spec(workload if "." in workload else f"{WORKLOADS_PACKAGE}.{workload}")
    except ImportError:
        return None
    if module_spec is None or module_spec.origin is None:
        return None
    folder, digest = Path(module_spec.origin).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _advise_retrace() -> str:
    return f"trace it again: {TRACE_COMMAND}"


def _read_shapes_file(path: Path) -> dict[str, Any]:
    """Return the content of a file of shapes. Raises StaleShapes if it cannot be read."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StaleShapes(f"{path}: cannot be read: {error}; {_advise_retrace()}") from None
    if not isinstance(tree, dict):
        raise StaleShapes(f"{path}: holds no shapes; {_advise_retrace()}")
    return tree
