"""The lock: all packages that run here and in the jobs, each at one version, with file hashes.

``make lock`` writes it (scripts/lock.py). A step's requirements.txt is the part of the lock that
the step needs. So a job installs exactly the packages of the commit, whenever it starts. torch is
not in the requirements: AWS builds the torch of its images for their CUDA and EFA.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from trainyard.common.errors import DefinitionError
from trainyard.image_packages import Image, load_facts

PACKAGES = "locks/packages.txt"

_ENTRY = re.compile(r"^(?=[^\s#])", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*", re.MULTILINE)
_HASH = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A locked package version; it is installed where the marker of ``requirement`` holds."""

    name: str
    """Normalised, such as ``scikit-learn``."""
    version: str
    requirement: Requirement
    hashes: tuple[str, ...]
    """Hashes of the package's files for all platforms: ``sha256:…``."""
    wanted_by: frozenset[str]
    """Names of the packages that depend on it, which uv notes in comments."""

    @property
    def line(self) -> str:
        """Return the line for pip, without comments: they can change when the package does not."""
        hashes = "".join(f" \\\n    --hash={value}" for value in self.hashes)
        return f"{self.requirement}{hashes}\n"


@lru_cache(maxsize=4)
def parse_lock(text: str, source: str) -> tuple[Entry, ...]:
    """Return the entries of a requirements file in which each line is ``name==version`` with
    hashes.

    Raises:
        DefinitionError: a line has another form; ``source`` names the file.
    """
    return tuple(_parse_entry(block, source) for block in _ENTRY.split(text)[1:])


def select_with_dependencies(
    entries: Sequence[Entry], roots: Iterable[str], source: str
) -> list[Entry]:
    """Return the entries of the requirements ``roots`` and of all their dependencies.

    Raises:
        DefinitionError: a requirement is not in the lock, or its version is outside the range;
            ``source`` names what requires it.
    """
    names: set[str] = set()
    queue = [_find_locked(entries, Requirement(root), source) for root in roots]
    while queue:
        name = queue.pop()
        if name not in names:
            names.add(name)
            queue += [entry.name for entry in entries if name in entry.wanted_by]
    return [entry for entry in entries if entry.name in names]


def select_for_python(entries: Iterable[Entry], python: str) -> list[Entry]:
    """Return the entries for a Linux container with that Python, such as ``3.12.8``."""
    # pip would evaluate the markers for the machine that it runs on, not for the container.
    container = {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    return [e for e in entries if not (m := e.requirement.marker) or m.evaluate(container)]


def merge_entries(
    our_entries: Sequence[Entry], user_entries: Sequence[Entry], source: str
) -> list[Entry]:
    """Return the entries of both lists, each package once.

    Raises:
        DefinitionError: a package in ``user_entries``, from the file ``source``, has another
            version than ours.
    """
    versions = {entry.name: entry.version for entry in our_entries}
    for entry in user_entries:
        if versions.get(entry.name, entry.version) != entry.version:
            raise DefinitionError(
                f"{source}: {entry.name} is {entry.version}, {PACKAGES} has "
                f"{versions[entry.name]}, and a job can have only one version: lock your "
                f"requirements again with `-c {PACKAGES}`"
            )
    return [*our_entries, *(entry for entry in user_entries if entry.name not in versions)]


def _parse_entry(block: str, source: str) -> Entry:
    """Return the entry of one requirement's lines, or raise DefinitionError if it is not pinned."""
    comments = " ".join(_COMMENT.findall(block))
    text = _COMMENT.sub("", block).replace("\\\n", " ").strip()
    requirement_text, *options = re.split(r"\s+(?=--)", text)
    hashes = tuple(re.sub("^--hash[= ]", "", option) for option in options)
    try:
        requirement = Requirement(requirement_text)
        [version] = [
            specifier.version for specifier in requirement.specifier if specifier.operator == "=="
        ]
    except (InvalidRequirement, ValueError):
        version = ""
    if not version or not hashes or not all(map(_HASH.fullmatch, hashes)):
        raise DefinitionError(
            f"{source}: {requirement_text!r} is not name==version with --hash=sha256:…, so it is "
            "unclear what a job would install; write the file with "
            "`uv pip compile --universal --generate-hashes`"
        )
    words = set(re.findall(r"[\w.-]+", comments)) - {"via", "pyproject.toml"}
    parents = {canonicalize_name(word) for word in words}
    name = canonicalize_name(requirement.name)
    return Entry(name, version, requirement, hashes, frozenset(parents))


def _find_locked(entries: Sequence[Entry], root: Requirement, source: str) -> str:
    """Return the name under which ``root`` is locked, or raise DefinitionError."""
    name = canonicalize_name(root.name)
    versions = [entry.version for entry in entries if entry.name == name]
    if not versions or not all(root.specifier.contains(v, prereleases=True) for v in versions):
        version_text = " and ".join(versions) or "no version of it"
        raise DefinitionError(
            f"{source} asks for {root}, {PACKAGES} has {version_text}: run `make lock`"
        )
    return name


# Compare the packages that our jobs install with those that AWS publishes for its images.


@dataclass(frozen=True, slots=True)
class ImageComparison:
    """What installing a job's packages changes in an image; each item names a package."""

    has: list[str]
    replacements: list[str]
    additions: list[str]
    not_published: list[str]
    """Packages whose version in the image is not published, so they may be there already."""

    conflicts: list[str]
    """Packages of the image that do not work with the installed versions; our jobs import none."""

    broken: list[str]
    """Packages that cannot be installed in the image, or do not work in it."""


def compare_with_image(entries: Sequence[Entry], image: Image) -> ImageComparison:
    """Return what installing the lock's ``entries`` changes in the image."""
    used = select_for_python(
        entries, image.python if image.python.count(".") > 1 else f"{image.python}.0"
    )
    comparison = ImageComparison([], [], [], [], list(_find_conflicts(used, image)), [])
    for entry in used:
        _classify_entry(comparison, entry, image)
        comparison.broken.extend(
            _find_unmet_requirements(entry, image, {other.name for other in used})
        )
    return comparison


def _classify_entry(comparison: ImageComparison, entry: Entry, image: Image) -> None:
    """Append the entry's text to the comparison's list for its effect on the image."""
    image_version = image.packages.get(entry.name)
    if image_version is None:
        is_lacking = image.whole and entry.name not in image.named
        (comparison.additions if is_lacking else comparison.not_published).append(entry.name)
        return
    if image_version == entry.version:
        comparison.has.append(f"{entry.name} {image_version}")
        return
    # AWS publishes either the exact version, or a range that contains it.
    form = f"=={image_version}" if image_version[:1].isdigit() else image_version
    if SpecifierSet(form).contains(entry.version):
        comparison.not_published.append(entry.name)
    else:
        comparison.replacements.append(f"{entry.name} {image_version} → {entry.version}")


def _find_conflicts(used: Sequence[Entry], image: Image) -> Iterator[str]:
    """Yield the image's packages whose requirements the installed versions do not meet."""
    versions = {entry.name: entry.version for entry in used}
    for package, demand in load_facts()["limits"].items():
        name, version = package.split()
        requirement = Requirement(demand)
        job_version = versions.get(requirement.name)
        if not job_version or image.packages.get(name) != version:
            continue
        if not requirement.specifier.contains(job_version):
            yield f"{package} needs {requirement}, the job installs {job_version}"


def _find_unmet_requirements(
    entry: Entry, image: Image, installed_names: set[str]
) -> Iterator[str]:
    """Yield the package's requirements on Python and packages that the image does not meet."""
    try:
        package_metadata = metadata(entry.name)
    except PackageNotFoundError:  # not installed here: a package for another platform
        return
    label = f"{entry.name} {entry.version}"
    python = package_metadata.get_all("Requires-Python") or [""]
    if not SpecifierSet(python[0]).contains(image.python):
        yield f"{label} needs Python {python[0]}"
    for requirement in map(Requirement, package_metadata.get_all("Requires-Dist") or ()):
        name = canonicalize_name(requirement.name)
        version = image.packages.get(name, "")
        is_pinned = version[:1].isdigit() and name not in installed_names and not requirement.marker
        if is_pinned and not requirement.specifier.contains(version):
            yield f"{label} needs {requirement}, the image has {version}"
