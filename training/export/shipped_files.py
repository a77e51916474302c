"""Lists of the files that are shipped into a step's container or an artifact, and of those that
affect weights.

The pipeline definition fills a step's folder according to these lists, the artifact includes what
inference imports, and the training's identity counts files by them. A file that is not listed is
not shipped, so changing it neither invalidates a step's cache nor restarts a training run.

A room is a folder of the checkout; its name ends with a slash.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

EVERYWHERE = ("trainyard/__init__.py", "trainyard/common/")
"""Files in every container and every artifact."""

EVERY_STEP = (
    *EVERYWHERE,
    *("steps/job_main.py", "steps/container.sh", "steps/installed.py", "steps/job_arguments.py"),
)
"""Files that run any step's ``steps/<step>/job.py``."""

ROOMS = {
    "shard": (
        "steps/shard/",
        *("training/__init__.py", "training/scores.py"),
        *("training/data/", "training/workloads/"),
    ),
    "train": ("training/", "steps/workload_settings.py"),
    "evaluate": (
        *("steps/evaluate/", "steps/shard/__init__.py", "steps/shard/readers/"),
        "training/",
        "conditions/__init__.py",
        "conditions/no_champion.py",
    ),
    "gate": ("conditions/",),
    "transform": (
        *("steps/transform/", "steps/shard/", "training/"),
        *("steps/evaluate/__init__.py", "steps/evaluate/evaluation_document.py"),
        "steps/evaluate/model_folder.py",
    ),
}
"""Mapping of a step to the further files and rooms that its job imports."""

READER = (*EVERYWHERE, "training/__init__.py", "training/data/")
"""Files that read shards, for a user's own script that uses them."""

STAYING = frozenset(
    {
        *(f"steps/{step}/step.py" for step in ROOMS),
        *(f"steps/{step}/config.py" for step in ROOMS),
        "conditions/step.py",
        "steps/shard/inspect.py",  # a command with which users inspect shards
        "training/tools/",
    }
)
"""Files and rooms that are not shipped: they declare a step to the pipeline, or people run them."""

TRAINYARD_ROOMS = ("training/", "steps/", "trainyard/", "requirements.txt")
"""Parts of a training job's folder that belong to Trainyard and not to the user."""

WITHOUT_EFFECT = frozenset(
    f"training/{name}"
    for name in (
        *("tools/", "watching/", "in_place_restart.py", "scores.py"),
        *("export/inference.py", "export/shipped_files.py"),
        *("data/torch_dataset.py", "data/hugging_face.py"),  # for other people's training loops
    )
)
"""Files shipped with the training that measure, report, restart or serve: no weight depends on
them. Everything else in training/ is part of a training run's identity, and so is a new file until
it is listed here.
"""

LITTER = ("__pycache__", ".pyc", ".DS_Store", ".egg-info", ".ipynb_checkpoints")


def iter_step_files(checkout: Path, step: str) -> Iterator[tuple[str, Path]]:
    """Yield (name in the shipped folder, file) of everything that step ``step`` ships.

    Raises:
        FileNotFoundError: a room is missing from the checkout.
    """
    for name, path in iter_room_files(
        checkout, (*EVERY_STEP, f"steps/{step}/job.py", *ROOMS[step])
    ):
        if not is_listed(name, STAYING):
            yield name, path


def iter_room_files(checkout: Path, rooms: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name relative to ``checkout``, file) of each of these files, and of all in a room."""
    for room in rooms:
        if room.endswith("/"):
            yield from ((f"{room}{name}", path) for name, path in iter_files(checkout / room))
        else:
            yield room, checkout / room


def is_listed(name: str, paths: Iterable[str]) -> bool:
    """Return whether a file is one of ``paths``, or is in a room (folder) that is one of them."""
    return any(name == path or (path.endswith("/") and name.startswith(path)) for path in paths)


def list_package_files(workload: str) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of the user's package that contains ``workload`` and of the files next to
    it.

    Yield nothing for one of Trainyard's workloads; for an installed package, only the package
    itself.
    """
    if "." not in workload:
        return
    package = Path(import_module(workload.partition(".")[0]).__path__[0])
    if package.parent.name in ("site-packages", "dist-packages"):
        yield from ((f"{package.name}/{name}", path) for name, path in iter_files(package))
    else:
        entries = iter_files(package.parent)
        yield from ((name, path) for name, path in entries if not name.startswith(TRAINYARD_ROOMS))


def iter_files(folder: Path, *, hidden: bool = False) -> Iterator[tuple[str, Path]]:
    """Yield (name with forward slashes, file) of everything in ``folder``, without tools'
    leftovers.

    Args:
        hidden: include files whose name or folder begins with a dot.
    """
    # Sorted, because what is packed and hashed by these names has to be the same on every machine.
    for path in sorted(folder.iterdir()):
        if path.name.endswith(LITTER) or (path.name.startswith(".") and not hidden):
            continue
        if path.is_dir() and not path.is_symlink():
            for name, inner in iter_files(path, hidden=hidden):
                yield f"{path.name}/{name}", inner
        elif path.is_file():
            yield path.name, path


def is_leftover(name: str) -> bool:
    """Return whether a file of this name is a tool's leftover, or hidden."""
    return any(part.startswith(".") or part.endswith(LITTER) for part in name.split("/"))
