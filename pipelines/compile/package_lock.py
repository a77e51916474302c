"""The lock: every package that runs here and in the jobs, at one version, with its files' hashes.

``make lock`` writes it (scripts/lock.py). A step's requirements.txt is the part of it that the step
needs, so a job gets the packages of the commit, whenever it starts, and no other bytes. torch is
not among them: AWS builds that of its images for the machines' CUDA and EFA.
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
from trainyard.image_packages import Image, facts

PACKAGES = "locks/packages.txt"

_ENTRY = re.compile(r"^(?=[^\s#])", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*", re.MULTILINE)
_HASH = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A locked package version, used where the marker of ``requirement`` holds."""

    name: str
    """Normalised: ``scikit-learn``."""
    version: str
    requirement: Requirement
    hashes: tuple[str, ...]
    """Hashes of the package's files for all platforms: ``sha256:…``."""
    wanted_by: frozenset[str]
    """Names of the packages that depend on it, which uv notes in comments."""

    @property
    def line(self) -> str:
        """Return the line for pip, without the comments: they may change when the
        package does not.
        """
        hashes = "".join(f" \\\n    --hash={value}" for value in self.hashes)
        return f"{self.requirement}{hashes}\n"


@lru_cache(maxsize=4)
def read(text: str, source: str) -> tuple[Entry, ...]:
    """Return the entries of a requirements file in which each line is ``name==version`` with
    hashes.

    Raises:
        DefinitionError: a line has another form; ``source`` names the file.
    """
    return tuple(_entry(block, source) for block in _ENTRY.split(text)[1:])


def closure(entries: Sequence[Entry], roots: Iterable[str], asks: str) -> list[Entry]:
    """Return the entries of ``roots``, which are requirements, and of all their dependencies.

    Raises:
        DefinitionError: the lock lacks one, or has a version outside its range; ``asks`` says what
            wants it.
    """
    names: set[str] = set()
    queue = [_find_locked(entries, Requirement(root), asks) for root in roots]
    while queue:
        name = queue.pop()
        if name not in names:
            names.add(name)
            queue += [entry.name for entry in entries if name in entry.wanted_by]
    return [entry for entry in entries if entry.name in names]


def used_in(entries: Iterable[Entry], python: str) -> list[Entry]:
    """Return the entries whose markers hold in a container with that Python, as ``3.12.8``."""
    # pip would evaluate the markers for the machine that it runs on.
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
    """Return both, each package once.

    Raises:
        DefinitionError: a package in ``user_entries``, the file ``source``, has another version
            than ours.
    """
    versions = {entry.name: entry.version for entry in our_entries}
    for entry in user_entries:
        if versions.get(entry.name, entry.version) != entry.version:
            raise DefinitionError(
                f"{source}: {entry.name} is {entry.version}, {PACKAGES} has "
                f"{versions[entry.name]}, and a job can have only one: lock yours again with "
                f"`-c {PACKAGES}`"
            )
    return [*our_entries, *(entry for entry in user_entries if entry.name not in versions)]


def _entry(block: str, source: str) -> Entry:
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


def _find_locked(entries: Sequence[Entry], root: Requirement, asks: str) -> str:
    """Return the name under which ``root`` is locked."""
    name = canonicalize_name(root.name)
    versions = [entry.version for entry in entries if entry.name == name]
    if not versions or not all(root.specifier.contains(v, prereleases=True) for v in versions):
        version_text = " and ".join(versions) or "nothing of it"
        raise DefinitionError(
            f"{asks} asks for {root}, {PACKAGES} has {version_text}: run `make lock`"
        )
    return name


# Compare what our jobs install with what AWS publishes of its images.


@dataclass(frozen=True, slots=True)
class Comparison:
    """What becomes of each package that a job installs; each is ``name`` and its versions."""

    has: list[str]
    replacements: list[str]
    additions: list[str]
    not_published: list[str]
    """Packages that the image may have: their versions are not published."""

    conflicts: list[str]
    """Packages of the image that no longer work beside those installed; our jobs import none."""

    broken: list[str]
    """Packages that cannot be installed there, or do not work there."""


def compare(entries: Sequence[Entry], image: Image) -> Comparison:
    """Return what becomes of the lock's ``entries`` in the image."""
    used = used_in(entries, image.python if image.python.count(".") > 1 else f"{image.python}.0")
    comparison = Comparison([], [], [], [], list(_conflicts(used, image)), [])
    for entry in used:
        _sort(comparison, entry, image)
        comparison.broken.extend(_unmet(entry, image, {other.name for other in used}))
    return comparison


def _sort(comparison: Comparison, entry: Entry, image: Image) -> None:
    image_version = image.packages.get(entry.name)
    if image_version is None:
        is_lacking = image.whole and entry.name not in image.named
        (comparison.additions if is_lacking else comparison.not_published).append(entry.name)
        return
    if image_version == entry.version:
        comparison.has.append(f"{entry.name} {image_version}")
        return
    # AWS publishes a version, or a range in which it lies.
    form = f"=={image_version}" if image_version[:1].isdigit() else image_version
    if SpecifierSet(form).contains(entry.version):
        comparison.not_published.append(entry.name)
    else:
        comparison.replacements.append(f"{entry.name} {image_version} → {entry.version}")


def _conflicts(used: Sequence[Entry], image: Image) -> Iterator[str]:
    """Iterate over the image's packages whose own demands the installed ones do not meet."""
    versions = {entry.name: entry.version for entry in used}
    for package, demand in facts()["limits"].items():
        name, version = package.split()
        requirement = Requirement(demand)
        job_version = versions.get(requirement.name)
        if not job_version or image.packages.get(name) != version:
            continue
        if not requirement.specifier.contains(job_version):
            yield f"{package} needs {requirement}, the job installs {job_version}"


def _unmet(entry: Entry, image: Image, installed_names: set[str]) -> Iterator[str]:
    """Iterate over what the package's metadata demands of Python and of the image's packages."""
    try:
        package_metadata = metadata(entry.name)
    except PackageNotFoundError:  # a package of another platform
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
