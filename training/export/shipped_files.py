"""Which files travel: into a step's container, into an artifact; and which of them shape weights.

The definition fills a step's folder by it, the artifact takes along by it what inference imports,
and the training's identity counts by it. What is not named stays at home: a change in it must not
make a step miss its cache, or a training begin anew.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

EVERYWHERE = ("trainyard/__init__.py", "trainyard/common/")
"""What every container and every artifact holds."""

EVERY_STEP = (
    *EVERYWHERE,
    *("steps/job_main.py", "steps/container.sh", "steps/installed.py", "steps/job_arguments.py"),
)
"""What runs any step's ``steps/<step>/job.py``."""

_EVALUATE_PARTS = (
    *("__init__", "evaluation_document", "leaked_examples", "score_table"),
    *("latency", "model_folder"),
)
ROOMS = {
    "shard": (
        *("steps/shard/", "training/__init__.py", "training/scores.py"),
        *("training/data/", "training/workloads/"),
    ),
    "train": ("training/",),
    "evaluate": (
        "steps/evaluate/",
        "training/",
        "conditions/__init__.py",
        "conditions/no_champion.py",
    ),
    "evaluate_script": (
        "steps/evaluate_script/",
        *(f"steps/evaluate/{name}.py" for name in _EVALUATE_PARTS),
        "training/",
        "conditions/__init__.py",
        "conditions/no_champion.py",
    ),
    "gate": ("conditions/",),
}
"""Step → what its job imports besides. A room ends with a slash."""

READER = (*EVERYWHERE, "training/__init__.py", "training/data/")
"""What reads shards, for a script of the user's own that is given some."""

STAYING = frozenset(
    {
        *(f"steps/{step}/{name}.py" for step in ROOMS for name in ("step", "config")),
        "conditions/step.py",
        "steps/shard/inspect.py",  # people look at shards with it
        *("training/scaling.py", "training/try.py", "training/contract_tests/"),  # they start jobs
        *("training/simulate.py", "training/simulation/"),
    }
)
"""What of the rooms stays: it declares a step to the pipeline, or people run it. A room ends with
a slash."""

OURS = ("training/", "steps/", "trainyard/", "requirements.txt")
"""What of a training's folder is not the user's own."""

WITHOUT_EFFECT = frozenset(
    f"training/{name}.py"
    for name in (
        *("in_place_restart", "scaling", "scores", "simulate", "try"),
        *("export/inference", "export/request_handler", "export/shipped_files"),
        *("data/torch_dataset", "data/hugging_face"),  # for loops that are not ours
    )
) | {"training/contract_tests/", "training/simulation/", "training/watching/"}
"""Files that travel with the training and measure, report, restart or serve: no weight depends on
them. All else in training/ counts, so a new file counts until it is listed here."""

ONCE_WITHOUT_EFFECT = frozenset(
    f"training/{name}.py"
    for name in (
        *("formats", "host_reads", "metrics", "profiler", "traffic"),
        *("clock", "devices", "metric_line", "metrics_page", "reports", "restart"),
        *("stragglers", "trackers", "watchdog", "inference", "serving", "shipping"),
        "workloads/language_model/traffic",
    )
) | {"training/health/", "training/trying/"}
"""Names that such files had in older versions, whose packages still have to verify."""

LITTER = ("__pycache__", ".pyc", ".DS_Store", ".egg-info", ".ipynb_checkpoints")


def for_step(checkout: Path, step: str) -> Iterator[tuple[str, Path]]:
    """Yield (name in the folder that travels, file) of all that step ``step`` takes along.

    Raises:
        FileNotFoundError: the checkout lacks a room.
    """
    for name, path in of_rooms(checkout, (*EVERY_STEP, f"steps/{step}/job.py", *ROOMS[step])):
        if not listed(name, STAYING):
            yield name, path


def of_rooms(checkout: Path, rooms: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name below ``checkout``, file) of the files that these rooms and files are."""
    for room in rooms:
        if room.endswith("/"):
            yield from ((f"{room}{name}", path) for name, path in files(checkout / room))
        else:
            yield room, checkout / room


def listed(name: str, places: Iterable[str]) -> bool:
    """Whether a file is one of ``places``, or lies in a room that is."""
    return any(name == one or (one.endswith("/") and name.startswith(one)) for one in places)


def beside(workload: str) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of the user's package that holds ``workload`` and of what lies beside it.

    Nothing where the workload is a shipped one; of an installed package nothing beside it.
    """
    if "." not in workload:
        return
    package = Path(import_module(workload.partition(".")[0]).__path__[0])
    if package.parent.name in ("site-packages", "dist-packages"):
        yield from ((f"{package.name}/{name}", path) for name, path in files(package))
    else:
        found = files(package.parent)
        yield from ((name, path) for name, path in found if not name.startswith(OURS))


def files(folder: Path, *, hidden: bool = False) -> Iterator[tuple[str, Path]]:
    """Yield (name with forward slashes, file) of all below ``folder``, without litter.

    ``hidden``: whether to take those, too, whose name or folder begins with a dot.
    """
    for path in sorted(folder.iterdir()):
        if path.name.endswith(LITTER) or (path.name.startswith(".") and not hidden):
            continue
        if path.is_dir() and not path.is_symlink():
            for name, inner in files(path, hidden=hidden):
                yield f"{path.name}/{name}", inner
        elif path.is_file():
            yield path.name, path


def is_litter(name: str) -> bool:
    """Whether a file of this name is left by tools, or hidden."""
    return any(part.startswith(".") or part.endswith(LITTER) for part in name.split("/"))
