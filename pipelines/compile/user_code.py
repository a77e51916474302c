"""Collect the folder of a user's own script, as it is sent to the training or evaluation job.

Files whose names suggest secrets are left out, and so are the caches of tools and the files that
.trainyardignore names. A folder that is so large that it must contain data is refused. If the
script is given shards, the code that reads them and the packages that it imports are added.
Trainyard's own files are chosen in ``training.export.shipped_files``.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

from pipelines.compile.package_lock import (
    PACKAGES,
    merge_entries,
    parse_lock,
    select_with_dependencies,
)
from pipelines.recipe.config import Recipe
from steps.evaluate.config import EvaluateConfig
from steps.train.config import TrainStepConfig, list_requirements
from steps.train.train_script import Project
from training.export import shipped_files
from training.identity import Parts
from trainyard.common.errors import DefinitionError

IGNORE = ".trainyardignore"
REQUIREMENTS = "requirements.txt"
ADDED_REQUIREMENTS = "trainyard-requirements.txt"
"""Name in the folder of a requirements file that is outside the folder."""
SECRET = (".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", ".netrc")
"""Names of files that usually contain secrets: everyone who may read the bucket could read them."""
LITTER = (".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "node_modules", IGNORE,
          ".mypy_cache", ".ruff_cache", ".pytest_cache", ".aws", ".ssh", ".idea", ".vscode",
          *("*" + end for end in shipped_files.LITTER))  # fmt: skip
"""Names of files and folders that are never sent: histories, environments, caches, credentials."""
FILE_SHARE = 0.25  # share of a folder's size limit that one file may have
MAX_FILES = 5  # maximum number of files that a message lists
MB = 1e6
ScriptSection = TrainStepConfig | EvaluateConfig
"""Section of a recipe that may name a script."""


def read_code_folder(folder: Path, limit_mb: float, setting: str) -> dict[str, bytes]:
    """Return the content of the files of ``folder`` that are sent to the job, by name.

    ``setting``: the recipe's field that sets the limit, for the message.

    Raises:
        DefinitionError: ``folder`` is not a folder, it is too large, or a link leads out of it.
    """
    if not folder.is_dir():
        raise DefinitionError(f"{folder}: is not a folder")
    paths = dict(_list_files(folder))
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    total, max_size = sum(sizes.values()), max(sizes.values(), default=0)
    if total > limit_mb * MB or max_size > limit_mb * FILE_SHARE * MB:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:MAX_FILES]
        listing = ", ".join(f"{name} ({sizes[name] / MB:.1f} MB)" for name in largest)
        raise DefinitionError(
            f"{folder}: {total / MB:.1f} MB would be uploaded with the script in {len(sizes)} "
            f"files, the largest {listing}; {setting} allows {limit_mb:g} MB in all and "
            f"{limit_mb * FILE_SHARE:g} MB a file: upload data and weights to S3 and name them as "
            f"a channel, list files that must not be uploaded in {folder / IGNORE}, or raise "
            f"{setting}"
        )
    return {name: path.read_bytes() for name, path in paths.items()}


def _list_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the files that are sent; raise DefinitionError for unusable links."""
    ignore_file = folder / IGNORE
    lines = ignore_file.read_text(encoding="utf-8").splitlines() if ignore_file.is_file() else []
    ignore_spec, real_folder = GitIgnoreSpec.from_lines(lines), folder.resolve()
    for parent, folders, names in os.walk(folder):
        parent_path = Path(parent)
        below = parent_path.relative_to(folder)
        # Assign in place: os.walk enters only the folders that are still in this list.
        folders[:] = sorted(
            name
            for name in folders
            if not _is_excluded(name)
            and not ignore_spec.match_file(f"{(below / name).as_posix()}/")
            # Any folder with this file is a virtual environment, whatever its name is.
            and not (parent_path / name / "pyvenv.cfg").exists()
        )
        # os.walk lists a link to a folder among the folders, but does not enter it.
        for name in sorted([*names, *(n for n in folders if (parent_path / n).is_symlink())]):
            path, relative = parent_path / name, (below / name).as_posix()
            if _is_excluded(name) or ignore_spec.match_file(relative):
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(real_folder):
                raise DefinitionError(
                    f"{path}: links out of the folder, to {path.resolve()}; copy it into the "
                    f"folder, or list it in {folder / IGNORE}"
                )
            if path.is_file():
                yield relative, path
            elif path.is_symlink():
                raise DefinitionError(
                    f"{path}: is a link to a folder, or to nothing; copy it, or list it in "
                    f"{folder / IGNORE}"
                )


def _is_excluded(name: str) -> bool:
    """Return whether files or folders of this name are never sent."""
    return any(fnmatch(name, pattern) for pattern in (*LITTER, *SECRET))


def find_name_in_folder(folder: Path, files: Mapping[str, bytes], path: Path, field: str) -> str:
    """Return the name that the file ``path`` has in the folder that is sent.

    Raises:
        DefinitionError: it is missing, outside the folder, or excluded; ``field`` names it.
    """
    if not path.is_file():
        raise DefinitionError(f"{field}: {path} is not a file; paths are relative to the recipe")
    try:
        name = path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise DefinitionError(
            f"{field}: {path} is not in {folder}, the folder that is uploaded; set "
            f"{field.partition('.')[0]}.source to a folder that contains both"
        ) from None
    if name not in files:
        raise DefinitionError(
            f"{field}: {path} is excluded from the upload, see {folder / IGNORE}; rename it"
        )
    return name


def read_script_projects(
    recipe: Recipe, home: Path, checkout: Path
) -> tuple[Project | None, Project | None]:
    """Return the folders of ``train.script`` and ``evaluate.script``, each with all that its job
    needs.

    Args:
        home: the recipe's folder.

    Returns:
        (folder of the training script, folder of the evaluation script); None for each that the
        recipe does not have.

    Raises:
        DefinitionError: a file that the recipe names is missing, or excluded.
    """
    training, evaluation = (
        read_training_project(recipe, home),
        read_evaluation_project(recipe, home),
    )
    if not training or not evaluation:
        return training, evaluation
    shards = recipe.data is not None
    return (
        complete_project(training, "train", checkout, shards, recipe.train.launcher),
        complete_project(evaluation, "evaluate", checkout, shards),
    )


def read_training_project(recipe: Recipe, home: Path) -> Project | None:
    """Return the folder of ``train.script``; None if the recipe has none.

    ``home``: the recipe's folder.

    Raises:
        DefinitionError: a file that the recipe names is missing, or excluded.
    """
    train = recipe.train
    project = read_section_project(train, "train", home)
    if project is None:
        return None
    folder, files = _find_source_folder(train, home), project.files

    def find_name(path: str | None, setting: str) -> str | None:
        return None if path is None else find_name_in_folder(folder, files, home / path, setting)

    return replace(
        project,
        driver=find_name(train.driver, "train.driver"),
        inference=find_name(recipe.inference.script, "inference.script"),
    )


def read_evaluation_project(recipe: Recipe, home: Path) -> Project | None:
    """Return the folder of ``evaluate.script``; None if the recipe has none.

    ``home``: the recipe's folder.

    Raises:
        DefinitionError: a file that the recipe names is missing, or excluded.
    """
    project, section = read_section_project(recipe.evaluate, "evaluate", home), recipe.evaluate
    if project is None or section.request is None:
        return project
    folder = _find_source_folder(section, home)
    request = find_name_in_folder(folder, project.files, home / section.request, "evaluate.request")
    return replace(project, request=request)


def read_section_project(section: ScriptSection, name: str, home: Path) -> Project | None:
    """Return the folder of the script in the section called ``name``; None without a script."""
    if section.script is None:
        return None
    folder = _find_source_folder(section, home)
    files = read_code_folder(folder, section.source_mb, f"{name}.source_mb")
    requirements = REQUIREMENTS if REQUIREMENTS in files else None
    if section.requirements is not None:
        requirements_path = home / section.requirements
        requirements = _find_requirements_name(
            folder, files, requirements_path, f"{name}.requirements"
        )
    script = find_name_in_folder(folder, files, home / str(section.script), f"{name}.script")
    return Project(files=files, script=script, requirements=requirements)


def _find_source_folder(section: ScriptSection, home: Path) -> Path:
    """Return the folder that is sent: the section's ``source``, or the folder of its script."""
    return home / section.source if section.source else (home / str(section.script)).parent


def _find_requirements_name(folder: Path, files: dict[str, bytes], path: Path, field: str) -> str:
    """Return the name of the requirements file ``path`` in the folder.

    A file from outside the folder is added to ``files`` as ``ADDED_REQUIREMENTS``.
    """
    if path.resolve().is_relative_to(folder.resolve()):
        return find_name_in_folder(folder, files, path, field)
    if not path.is_file():
        raise DefinitionError(f"{field}: {path} is not a file; paths are relative to the recipe")
    files[ADDED_REQUIREMENTS] = path.read_bytes()
    return ADDED_REQUIREMENTS


def build_script_parts(recipe: Recipe, project: Project, image: str) -> Parts:
    """Return everything that the weights of a script's training depend on and that is known before
    the execution.
    """
    train = recipe.train
    # The number of processes is not one of them, as with Trainyard's own loop.
    settings: dict[str, Any] = {
        "arguments": train.arguments,
        "environment": train.environment,
        "channels": train.channels,
        "image": image,
    }
    if train.file_systems:
        settings["file_systems"] = train.model_dump(mode="json")["file_systems"]
    settings |= {
        "script": project.script,
        "requirements": project.requirements,
        "launcher": train.launcher,
        "driver": project.driver,
    }
    if recipe.data:
        packing_sections = {"workload": recipe.workload, "shard": recipe.shard, "data": recipe.data}
        settings |= {
            name: section.model_dump(mode="json") for name, section in packing_sections.items()
        }
    code = {name: sha256(content).hexdigest() for name, content in sorted(project.files.items())}
    return Parts(workload=recipe.kind, workload_config={}, settings=settings, code=code)


READS = ("numpy", "pyarrow", "pydantic")
"""Packages that ``training.data`` imports, which reads the shards."""
RESERVED_NAMES = ("training", "trainyard")


def complete_project(
    project: Project, section: str, checkout: Path, shards: bool, launcher: str = "none"
) -> Project:
    """Return the project with everything that its job needs; unchanged if nothing is missing.

    Args:
        section: section of the recipe, for messages: ``train`` or ``evaluate``.
        shards: whether the script is given shards, so that it imports ``training.data``.

    Raises:
        DefinitionError: the folder has packages of the same names, or locks other versions.
    """
    package_names = list(list_requirements("", launcher))
    if shards:
        project = _add_shard_reader(project, section, checkout)
        package_names += READS
    return _add_packages(project, section, package_names, checkout) if package_names else project


def _add_shard_reader(project: Project, section: str, checkout: Path) -> Project:
    """Return the project with Trainyard's code that reads shards added to its files."""
    for name in project.files:
        if name.partition("/")[0].removesuffix(".py") in RESERVED_NAMES:
            raise DefinitionError(
                f"{section}.script: its folder holds {name}, and Trainyard's reader of shards, "
                "which a recipe with a data section adds to it, is a package of that name; "
                "rename it"
            )
    rooms = shipped_files.iter_room_files(checkout, shipped_files.READER)
    return replace(project, files={**project.files, **{n: p.read_bytes() for n, p in rooms}})


def _add_packages(
    project: Project, section: str, package_names: Sequence[str], checkout: Path
) -> Project:
    """Return the project with the packages added to its requirements file, with hashes if the file
    has any, because pip requires hashes for all packages or for none.
    """
    user_file = project.requirements
    text = project.files[user_file].decode() if user_file else ""
    if "--hash" in text:
        lock = parse_lock((checkout / PACKAGES).read_text(encoding="utf-8"), PACKAGES)
        our_entries = select_with_dependencies(lock, package_names, f"{section}.script")
        entries = merge_entries(
            our_entries, parse_lock(text, str(user_file)), f"{section}.requirements: {user_file}"
        )
        text = "".join(entry.line for entry in entries)
    else:
        above = f"-r {user_file}\n" if user_file and user_file != ADDED_REQUIREMENTS else text
        text = "\n".join([above.rstrip(), *package_names]).lstrip() + "\n"
    return replace(
        project,
        files={**project.files, ADDED_REQUIREMENTS: text.encode()},
        requirements=ADDED_REQUIREMENTS,
    )
