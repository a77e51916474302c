"""What a script's folder gets from Trainyard: the shards' reader where it is given shards, and the
packages that this and the launcher import."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipelines.compiling.locked import PACKAGES, closure, merged, read
from pipelines.compiling.project import ADDED
from steps.train.script import Project
from steps.train.support import requirements
from training import shipping
from trainyard.common.errors import DefinitionError

READS = ("numpy", "pyarrow", "pydantic")
"""What training/data imports."""
TAKEN = ("training", "trainyard")


def completed(
    project: Project, section: str, checkout: Path, shards: bool, launcher: str = "none"
) -> Project:
    """The project with all that its job needs; as it is where it needs nothing more.

    Args:
        section: of the recipe, for messages: ``train`` or ``evaluate``.
        shards: whether the script is given shards, so that it imports ``training.data``.

    Raises:
        DefinitionError: the folder has packages of the same names, or other versions in the lock.
    """
    wanted = list(requirements("", launcher))
    if shards:
        project = _with_reader(project, section, checkout)
        wanted += READS
    return _with_packages(project, section, wanted, checkout) if wanted else project


def _with_reader(project: Project, section: str, checkout: Path) -> Project:
    for name in project.files:
        if name.partition("/")[0].removesuffix(".py") in TAKEN:
            raise DefinitionError(
                f"{section}.script: its folder holds {name}, and Trainyard's reader of shards, "
                "which a recipe with a data section adds to it, is a package of that name; "
                "rename it"
            )
    rooms = shipping.of_rooms(checkout, shipping.READER)
    return replace(project, files={**project.files, **{n: p.read_bytes() for n, p in rooms}})


def _with_packages(
    project: Project, section: str, wanted: Sequence[str], checkout: Path
) -> Project:
    """A requirements file of both. With hashes where the user's has some: pip takes all or none."""
    theirs = project.requirements
    text = project.files[theirs].decode() if theirs else ""
    if "--hash" in text:
        lock = read((checkout / PACKAGES).read_text(encoding="utf-8"), PACKAGES)
        ours = closure(lock, wanted, f"{section}.script")
        entries = merged(ours, read(text, str(theirs)), f"{section}.requirements: {theirs}")
        text = "".join(entry.line for entry in entries)
    else:
        above = f"-r {theirs}\n" if theirs and theirs != ADDED else text
        text = "\n".join([above.rstrip(), *wanted]).lstrip() + "\n"
    return replace(project, files={**project.files, ADDED: text.encode()}, requirements=ADDED)
