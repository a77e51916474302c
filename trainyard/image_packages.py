"""The packages in AWS's images, as far as AWS publishes them (image_packages.yaml) or an image's
tag says them; and how a Python that is used instead of an image differs from it.
"""

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
"""Mapping of a word in a repository's name to the package with whose version its tags begin."""
_VERSION = r"\d+\.\d+(?:\.\d+)?"


@dataclass(frozen=True, slots=True)
class Image:
    """An AWS image, and what is known about its packages."""

    name: str
    """Repository and version, such as ``pytorch-training 2.9.0``."""

    python: str
    """Version of Python; empty if it is not published."""

    source: str
    packages: Mapping[str, str]
    """Mapping of a package to its version, the beginning of its version, or a range."""

    named: tuple[str, ...] = ()
    """Further packages, whose version the source does not give."""

    whole: bool = False
    """True if the source lists all packages."""


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package that is installed in an interpreter."""

    version: str
    modules: tuple[str, ...]
    """Names by which it is imported."""


@cache
def load_facts() -> dict[str, Any]:
    """Return the content of image_packages.yaml: ``images``, and ``limits`` of some packages."""
    return load_yaml(PACKAGES_FILE.read_text(encoding="utf-8"))


@cache
def load_published_images() -> Mapping[str, Image | None]:
    """Return a mapping of a name to an image, or to None if its packages are not published."""
    images: dict[str, Any] = load_facts()["images"]
    return {
        name: Image(name, **entry) if isinstance(entry, dict) else None
        for name, entry in images.items()
    }


def find_published_image(uri: str | None) -> Image | None:
    """Return the published image to which a URI belongs, by repository and tag; None if there is
    none.
    """
    match = IMAGE.fullmatch(uri or "")
    if not match:
        return None
    tag = f"{match['repository']} {match['tag'] or ''}-"
    names = [
        name
        for name, image in load_published_images().items()
        if image and tag.startswith(f"{name}-")
    ]
    return load_published_images()[max(names, key=len)] if names else None


def find_image(uri: str | None) -> Image | None:
    """Return what is known about the image with a URI, from AWS's publications and from its tag.

    Return None if nothing is known, such as for an image that is not AWS's.
    """
    match = IMAGE.fullmatch(uri or "")
    if not match:
        return None
    repository, tag = match["repository"].rpartition("/")[2], match["tag"] or ""
    packages = dict(_parse_tag(repository, tag))
    image = find_published_image(uri)
    if image:
        return replace(image, packages=packages | dict(image.packages))
    python = re.search(r"-py3(\d+)\b", tag)
    short = f"{repository} {tag}" if len(tag) < 20 else f"{repository} {tag.partition('-')[0]}"
    return Image(short, f"3.{python[1]}" if python else "", "tag", packages) if packages else None


def _parse_tag(repository: str, tag: str) -> Iterator[tuple[str, str]]:
    """Iterate over (package, version) in a tag, such as
    ``2.1.0-transformers4.36.0-cpu-py310-ubuntu20.04``.
    """
    framework = next((p for word, p in _FRAMEWORKS.items() if word in repository), None)
    version = re.match(_VERSION, tag)
    if framework and version:
        yield framework, version[0]
        if further := re.search(rf"-transformers({_VERSION})", tag):
            yield "transformers", further[1]


def list_differences(
    image: Image,
    python: str,
    installed_packages: Mapping[str, InstalledPackage],
    imported_modules: set[str],
) -> list[str]:
    """Return how an interpreter that is used instead of an image differs from it.

    Each entry is like ``pandas 3.0.2 (there 1.1.3)``. Python's versions are compared up to their
    second number.

    Args:
        image: the image.
        python: version of the interpreter.
        installed_packages: mapping of a package to what the interpreter has of it; each must be in
            ``image.packages``.
        imported_modules: modules that the job imports; other packages are not compared.
    """
    rows = [
        f"{name} {package.version} (there {image.packages[name]})"
        for name, package in sorted(installed_packages.items())
        if imported_modules & set(package.modules)
        and not _is_compatible_version(package.version, image.packages[name])
    ]
    if image.python and python.split(".")[:2] != image.python.split(".")[:2]:
        rows.append(f"Python {python} (there {image.python})")
    return rows


def _is_compatible_version(version: str, published_version: str) -> bool:
    """Return whether a version is the published one, begins with it, or is in its range."""
    if published_version[:1].isdigit():
        return f"{version.partition('+')[0]}.".startswith(f"{published_version}.")
    own_numbers, limit = _parse_version(version), _parse_version(published_version)
    return own_numbers >= limit if published_version.startswith(">=") else own_numbers < limit


def _parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without its local part and zeros at the end."""
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
    # Version 2.0 equals version 2.
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
