"""What a job's packages become in an image of AWS."""

from importlib.metadata import version

from packaging.requirements import Requirement

from pipelines.compile.image_packages import Image, compare, image_of, published
from pipelines.compile.package_lock import Entry

ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com"


def entry(name: str, marker: str = "") -> Entry:
    """A package as it is installed here, as the lock has it."""
    line = Requirement(f"{name}=={version(name)}{marker and f'; {marker}'}")
    return Entry(name, version(name), line, (), frozenset())


def test_the_longest_version_in_a_tag_names_the_image():
    found = image_of(f"{ECR}/sagemaker-scikit-learn:1.4-2-py312-cpu-py3")
    assert found and found.name == "sagemaker-scikit-learn 1.4-2-py312" and found.python == "3.12"
    old = image_of(f"{ECR}/sagemaker-scikit-learn:1.4-2-cpu-py3")
    assert old and old.python == "3.10"
    assert image_of(f"{ECR}/sagemaker-scikit-learn:1.4-20-cpu-py3") is None
    assert image_of("own/image:1") is image_of(None) is None


def test_smp_images_are_known_and_not_published():
    assert published()["smdistributed-modelparallel 2.5.1"] is None


def test_each_package_is_sorted_by_what_is_published():
    packages = {"numpy": version("numpy"), "scipy": "1.0", "pyyaml": ">=5"}
    names = ("numpy", "scipy", "pyyaml", "pandas", "click")
    entries = [*map(entry, names), entry("idna", "sys_platform == 'win32'")]
    part = compare(entries, Image("a 1", "3.12", "", packages, named=("pandas",)))
    assert part.has == [f"numpy {version('numpy')}"]
    assert part.replaced == [f"scipy 1.0 → {version('scipy')}"]
    assert (part.added, part.not_published) == ([], ["pyyaml", "pandas", "click"])
    assert (part.conflicts, part.broken) == ([], [])
    whole = compare(entries, Image("a 1", "3.12", "", packages, named=("pandas",), whole=True))
    assert (whole.added, whole.not_published) == (["click"], ["pyyaml", "pandas"])


def test_what_breaks_and_what_conflicts_is_named_with_versions():
    image = Image("a 1", "3.9", "", {"numba": "0.61.0", "numpy": "1.0"})
    found = compare([entry("numpy")], image)
    assert found.broken == [f"numpy {version('numpy')} needs Python >=3.11"]
    [conflict] = found.conflicts
    assert conflict.startswith("numba 0.61.0 needs numpy<2.2,>=1.24, the job installs 2.")
    [unmet] = compare([entry("scipy")], Image("a 1", "3.12", "", {"numpy": "1.0"})).broken
    assert unmet.startswith(f"scipy {version('scipy')} needs numpy<")
