"""What a job's packages become in an image of AWS."""

from importlib.metadata import version

from packaging.requirements import Requirement

from pipelines.compile.package_lock import Entry, compare
from trainyard.image_packages import Image


def entry(name: str, marker: str = "") -> Entry:
    """A package as it is installed here, as the lock has it."""
    line = Requirement(f"{name}=={version(name)}{marker and f'; {marker}'}")
    return Entry(name, version(name), line, (), frozenset())


def test_each_package_is_sorted_by_what_is_published():
    packages = {"numpy": version("numpy"), "scipy": "1.0", "pyyaml": ">=5"}
    names = ("numpy", "scipy", "pyyaml", "pandas", "click")
    entries = [*map(entry, names), entry("idna", "sys_platform == 'win32'")]
    part = compare(entries, Image("a 1", "3.12", "", packages, named=("pandas",)))
    assert part.has == [f"numpy {version('numpy')}"]
    assert part.replacements == [f"scipy 1.0 → {version('scipy')}"]
    assert (part.additions, part.not_published) == ([], ["pyyaml", "pandas", "click"])
    assert (part.conflicts, part.broken) == ([], [])
    whole = compare(entries, Image("a 1", "3.12", "", packages, named=("pandas",), whole=True))
    assert (whole.additions, whole.not_published) == (["click"], ["pyyaml", "pandas"])


def test_what_breaks_and_what_conflicts_is_named_with_versions():
    image = Image("a 1", "3.9", "", {"numba": "0.61.0", "numpy": "1.0"})
    found = compare([entry("numpy")], image)
    assert found.broken == [f"numpy {version('numpy')} needs Python >=3.11"]
    [conflict] = found.conflicts
    assert conflict.startswith("numba 0.61.0 needs numpy<2.2,>=1.24, the job installs 2.")
    [unmet] = compare([entry("scipy")], Image("a 1", "3.12", "", {"numpy": "1.0"})).broken
    assert unmet.startswith(f"scipy {version('scipy')} needs numpy<")
