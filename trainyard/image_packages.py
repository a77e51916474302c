"""What AWS publishes of its images' packages (image_packages.yaml), and what a tag itself says."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from trainyard.read_yaml import load_yaml
from trainyard.validate.rules.images import IMAGE

PACKAGES_FILE = Path(__file__).with_suffix(".yaml")
_FRAMEWORKS = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "xgboost": "xgboost",
    "scikit-learn": "scikit-learn",
}
"""Word of a repository's name → package whose version begins its tags."""
_VERSION = r"\d+\.\d+(?:\.\d+)?"


@dataclass(frozen=True, slots=True)
class Image:
    """An image of AWS of whose packages something is published."""

    name: str
    """Repository and version: ``pytorch-training 2.9.0``."""

    python: str
    """Version of Python; empty if it is not published."""

    source: str
    packages: Mapping[str, str]
    """Package → version, the beginning of one, or a range."""

    named: tuple[str, ...] = ()
    """Packages whose version the source does not give."""

    whole: bool = False
    """Whether the source lists every package."""


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """What an interpreter has of a package."""

    version: str
    modules: tuple[str, ...]
    """Names by which it is imported."""


@cache
def facts() -> dict[str, Any]:
    """Return the document: ``images``, and the ``limits`` of some packages in them."""
    return load_yaml(PACKAGES_FILE.read_text(encoding="utf-8"))


@cache
def published_images() -> Mapping[str, Image | None]:
    """Return name → image; None for one whose packages AWS does not publish."""
    images: dict[str, Any] = facts()["images"]
    return {
        name: Image(name, **entry) if isinstance(entry, dict) else None
        for name, entry in images.items()
    }


def image_of(uri: str | None) -> Image | None:
    """Return the image that a URI names by its tag; None if nothing is published of it."""
    match = IMAGE.fullmatch(uri or "")
    if not match:
        return None
    tag = f"{match['repository']} {match['tag'] or ''}-"
    names = [
        name for name, image in published_images().items() if image and tag.startswith(f"{name}-")
    ]
    return published_images()[max(names, key=len)] if names else None


def known_image(uri: str | None) -> Image | None:
    """Return the image with what its tag says, too; None for one that is not AWS's."""
    match = IMAGE.fullmatch(uri or "")
    if not match:
        return None
    repository, tag = match["repository"].rpartition("/")[2], match["tag"] or ""
    packages = dict(_parse_tag(repository, tag))
    image = image_of(uri)
    if image:
        return replace(image, packages=packages | dict(image.packages))
    python = re.search(r"-py3(\d+)\b", tag)
    short = f"{repository} {tag}" if len(tag) < 20 else f"{repository} {tag.partition('-')[0]}"
    return Image(short, f"3.{python[1]}" if python else "", "tag", packages) if packages else None


def _parse_tag(repository: str, tag: str) -> Iterator[tuple[str, str]]:
    """Iterate over (package, version) in a tag: 2.1.0-transformers4.36.0-cpu-py310-ubuntu20.04."""
    framework = next((p for word, p in _FRAMEWORKS.items() if word in repository), None)
    version = re.match(_VERSION, tag)
    if framework and version:
        yield framework, version[0]
        if further := re.search(rf"-transformers({_VERSION})", tag):
            yield "transformers", further[1]


def differences(
    image: Image,
    python: str,
    installed_packages: Mapping[str, InstalledPackage],
    imported_modules: set[str],
) -> list[str]:
    """Return what an interpreter that stands in for the image has otherwise: ``pandas 3.0.2 (there
    1.1.3)``; of packages those that are ``imported_modules``, and Python's version to the second
    number.
    """
    rows = [
        f"{name} {package.version} (there {image.packages[name]})"
        for name, package in sorted(installed_packages.items())
        if imported_modules & set(package.modules)
        and not _fits(package.version, image.packages[name])
    ]
    if image.python and python.split(".")[:2] != image.python.split(".")[:2]:
        rows.append(f"Python {python} (there {image.python})")
    return rows


def _fits(version: str, published_version: str) -> bool:
    """Return whether a version is the one that is published, begins with it, or is in its range."""
    if published_version[:1].isdigit():
        return f"{version.partition('+')[0]}.".startswith(f"{published_version}.")
    own_numbers, limit = _numbers(version), _numbers(published_version)
    return own_numbers >= limit if published_version.startswith(">=") else own_numbers < limit


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
    # 2.0 is 2.
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
