"""Compare what our jobs install with what AWS publishes of its images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from pipelines.compile.package_lock import Entry, used_in
from trainyard.image_packages import Image, facts


@dataclass(frozen=True, slots=True)
class Comparison:
    """What becomes of each package that a job installs; each is ``name`` and its versions."""

    has: list[str]
    replaced: list[str]
    added: list[str]
    not_published: list[str]
    """Packages that the image may have: their versions are not published."""

    conflicts: list[str]
    """Packages of the image that no longer work beside those installed; our jobs import none."""

    broken: list[str]
    """Packages that cannot be installed there, or do not work there."""


def compare(entries: Sequence[Entry], image: Image) -> Comparison:
    """Return what becomes of the lock's ``entries`` in the image."""
    used = used_in(entries, image.python if image.python.count(".") > 1 else f"{image.python}.0")
    found = Comparison([], [], [], [], list(_conflicts(used, image)), [])
    for entry in used:
        _sort(found, entry, image)
        found.broken.extend(_unmet(entry, image, {one.name for one in used}))
    return found


def _sort(found: Comparison, entry: Entry, image: Image) -> None:
    said = image.packages.get(entry.name)
    if said is None:
        lacking = image.whole and entry.name not in image.named
        (found.added if lacking else found.not_published).append(entry.name)
    elif said == entry.version:
        found.has.append(f"{entry.name} {said}")
    elif not _published(said).contains(entry.version):
        found.replaced.append(f"{entry.name} {said} → {entry.version}")
    else:
        found.not_published.append(entry.name)


def _conflicts(used: Sequence[Entry], image: Image) -> Iterator[str]:
    """Iterate over the image's packages whose own demands the installed ones do not meet."""
    versions = {entry.name: entry.version for entry in used}
    for package, demand in facts()["limits"].items():
        name, version = package.split()
        needed = Requirement(demand)
        installed = versions.get(needed.name)
        if not installed or image.packages.get(name) != version:
            continue
        if not needed.specifier.contains(installed):
            yield f"{package} needs {needed}, the job installs {installed}"


def _unmet(entry: Entry, image: Image, installed: set[str]) -> Iterator[str]:
    """Iterate over what the package's metadata demands of Python and of the image's packages."""
    try:
        said = metadata(entry.name)
    except PackageNotFoundError:  # a package of another platform
        return
    what = f"{entry.name} {entry.version}"
    python = said.get_all("Requires-Python") or [""]
    if not SpecifierSet(python[0]).contains(image.python):
        yield f"{what} needs Python {python[0]}"
    for needed in map(Requirement, said.get_all("Requires-Dist") or ()):
        name = canonicalize_name(needed.name)
        version = image.packages.get(name, "")
        pinned = version[:1].isdigit() and name not in installed and not needed.marker
        if pinned and not needed.specifier.contains(version):
            yield f"{what} needs {needed}, the image has {version}"


def _published(said: str) -> SpecifierSet:
    """Return the range in which the image's version lies."""
    return SpecifierSet(f"=={said}" if said[:1].isdigit() else said)
