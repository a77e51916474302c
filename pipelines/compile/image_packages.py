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
