"""The lock: it covers what is asked for, nothing gets past it; what it becomes in AWS's images."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines.compile.compilation import collect_step_code
from pipelines.compile.package_lock import (
    PACKAGES,
    Entry,
    compare_with_image,
    parse_lock,
    select_with_dependencies,
)
from steps.gate.config import PACKAGES as OF_GATE
from steps.installed import iter_differences
from steps.train.config import REQUIREMENTS
from tests.conftest import CHECKOUT
from training.config import TrainConfig
from training.watching.trackers import list_packages
from trainyard.common.errors import DefinitionError
from trainyard.image_packages import Image

FILES = ("locks/torch.txt", "locks/cuda.txt", "locks/uv.txt", PACKAGES)
RUN = "locks/run.txt"
HASH = "sha256:" + "0" * 64


def read_lock_entries() -> list[Entry]:
    return [entry for name in FILES for entry in parse_lock((CHECKOUT / name).read_text(), name)]


def iter_dependencies(extra: str | None = None) -> Iterator[Requirement]:
    """Yield the dependencies in pyproject.toml, with ``extra`` and the extras that it names."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    for requirement in map(Requirement, lines):
        if requirement.name == project["name"]:
            yield from chain.from_iterable(map(iter_dependencies, requirement.extras))
        else:
            yield requirement


def needs(entry: Entry) -> Iterator[Requirement]:
    """Yield the dependencies of the installed package in this environment, without extras."""
    try:
        lines = requires(entry.name) or ()
    except PackageNotFoundError:  # for another platform
        return
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def fits(requirement: Requirement, entries: list[Entry]) -> bool:
    name = canonicalize_name(requirement.name)
    versions = [entry.version for entry in entries if entry.name == name]
    return bool(versions) and all(requirement.specifier.contains(v, True) for v in versions)


def lacking(entries: list[Entry], of: list[Entry]) -> set[tuple[str, str]]:
    """What some packages need that others are not."""
    return {(e.name, str(r)) for e in of for r in needs(e) if not fits(r, entries)}


def test_the_lock_covers_what_the_project_and_its_packages_ask_for():
    entries = read_lock_entries()
    assert not [
        str(r) for r in (*iter_dependencies(), *iter_dependencies("dev")) if not fits(r, entries)
    ], "make lock"
    assert not lacking(entries, entries), "make lock"


@pytest.mark.parametrize(
    ("file", "extra", "without"),
    [
        ("locks/image.txt", "image", {"pytest", "sagemaker", "cfn-lint"}),
        (RUN, "run", {"ruff", "pyrefly", "awscli", "tensorboard", "deepspeed"}),
    ],
)
def test_the_training_image_and_make_run_have_the_part_of_the_lock_that_they_need(
    file: str, extra: str, without: set[str]
):
    part = parse_lock((CHECKOUT / file).read_text(), file)
    assert set(e.line for e in part) < set(e.line for e in read_lock_entries()), "make lock"
    entries = [*part, *(e for e in read_lock_entries() if e.name in ("torch", "uv"))]
    assert not [str(r) for r in iter_dependencies(extra) if not fits(r, entries)], "make lock"
    assert extra == "image" or not lacking(entries, part), "make lock"
    assert not without & {e.name for e in part}


def test_this_environment_is_the_lock_which_names_no_index():
    """Otherwise `make test` would test other packages than a job gets; CUDA's libraries are
    optional.
    """
    found = {
        name: [*iter_differences(CHECKOUT / name)] for name in FILES if name != "locks/cuda.txt"
    }
    assert not any(found.values()), f"make .venv/installed: {found}"
    for name in (*FILES, RUN):
        assert not re.search("://|--(extra-)?index|--find-links", (CHECKOUT / name).read_text())


def test_torch_has_the_hashes_of_builds_with_cuda_and_of_those_for_the_cpu():
    [torch] = parse_lock((CHECKOUT / "locks/torch.txt").read_text(), "torch")
    known = {  # from PyTorch's index for the CPU: CPython 3.11, 3.12, 3.13, x86-64
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
        "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
        "3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6",
    }
    assert torch.version != "2.13.0" or {f"sha256:{value}" for value in known} < set(torch.hashes)
    assert len(torch.hashes) > 24  # the ordinary builds of one version


def every_wish() -> set[str]:
    """Return the requirements that recipes can add to the train step."""
    config = TrainConfig.model_construct(tensorboard=True)
    uris = ("local", "http://mlflow", "arn:aws:sagemaker:eu-west-1:1:mlflow")
    trackers = (list_packages(config, uri).values() for uri in uris)
    return {*chain.from_iterable(trackers), *chain.from_iterable(REQUIREMENTS.values())}


@pytest.mark.parametrize("step", ["shard", "train", "evaluate", "gate"])
def test_a_job_installs_all_that_it_needs_from_the_lock_but_torch(step: str):
    """Pip refuses what is not in the file, since hashes are; torch it finds in the image."""
    wished = {"train": sorted(every_wish()), "gate": OF_GATE}.get(step, ())
    text = collect_step_code(CHECKOUT, step, None, wished)["requirements.txt"].decode()
    entries = list(parse_lock(text, step))
    missing = {Requirement(line).name for _, line in lacking(entries, entries)}
    assert {canonicalize_name(name) for name in missing} <= {"torch"}
    known = {
        (e.name, e.version): e.hashes for e in parse_lock((CHECKOUT / PACKAGES).read_text(), "")
    }
    assert all(known[e.name, e.version] == e.hashes for e in entries)


def test_another_package_changes_no_job_and_what_the_lock_has_not_is_refused():
    entries = parse_lock((CHECKOUT / PACKAGES).read_text(), "")
    before = [entry.line for entry in select_with_dependencies(entries, OF_GATE, "gate")]
    more = Entry("more", "1", Requirement("more==1"), (HASH,), frozenset({"ruff"}))
    assert [
        entry.line for entry in select_with_dependencies([*entries, more], OF_GATE, "gate")
    ] == before
    for root, found in (
        ("numpy>=999", r"has \d+\.\d+\.\d+"),
        ("no-such-package", "no version of it"),
    ):
        with pytest.raises(DefinitionError, match=f"train asks for {root}.*{found}.*make lock"):
            select_with_dependencies(entries, [root], "step train")


@pytest.mark.parametrize(
    "line", ["einops", "einops>=0.8", f"einops>=0.8 --hash={HASH}", "einops==0.8.2",
             "einops==0.8.2 --hash=md5:0", "-r other.txt", f"./einops.whl --hash={HASH}",
             "einops==0.8.2 --hash=sha256:12", f"einops==0.8.2 --hash={HASH} --no-deps"],
)  # fmt: skip
def test_what_nobody_could_install_again_is_refused(line: str):
    with pytest.raises(DefinitionError, match="mine: .* is not name==version with --hash=sha256"):
        parse_lock(f"# mine\n{line}\n", "mine")


def test_a_users_own_requirements_are_added_and_may_not_contradict(tmp_path: Path):
    (tmp_path / "requirements.txt").write_text(f"einops==0.8.2 --hash={HASH}\n")
    files = collect_step_code(CHECKOUT, "train", tmp_path)
    usual = collect_step_code(CHECKOUT, "train", None)["requirements.txt"].decode()
    assert files["requirements.txt"].decode() == f"{usual}einops==0.8.2 \\\n    --hash={HASH}\n"
    (tmp_path / "requirements.txt").write_text(f"numpy==1.0.0 --hash={HASH}\n")
    with pytest.raises(DefinitionError, match="requirements.txt: numpy is 1.0.0, locks/packages"):
        collect_step_code(CHECKOUT, "train", tmp_path)


ENTRIES = st.builds(
    lambda name, numbers, marker, hashes: Entry(
        name,
        (version := ".".join(map(str, numbers))),
        Requirement(f"{name}=={version}{marker}"),
        tuple(f"sha256:{value:064x}" for value in hashes),
        frozenset(),
    ),
    st.sampled_from(["a", "scikit-learn", "x2-y3"]),
    st.lists(st.integers(0, 2030), min_size=1, max_size=4),
    st.sampled_from(["", '; python_version < "3.12"', '; sys_platform == "linux"']),
    st.lists(st.integers(0, 2**256 - 1), min_size=1, max_size=3),
)


@given(st.lists(ENTRIES, max_size=5))
def test_what_is_written_is_read_again(entries: list[Entry]):
    text = "".join(entry.line for entry in entries)
    assert [(e.name, e.line) for e in parse_lock(text, "it")] == [(e.name, e.line) for e in entries]


@pytest.mark.parametrize("text", [
    f"a==1 \\\n    --hash={HASH}\n    # via\n    #   b\n    #   c-d (pyproject.toml)\n",
    f"a==1 --hash={HASH}  # via b, C_d\n",
])  # fmt: skip
def test_who_wants_a_package_stands_in_the_comment_however_uv_writes_it(text: str):
    [entry] = parse_lock(f"# head\n{text}", "it")
    assert (entry.version, entry.hashes, entry.wanted_by) == ("1", (HASH,), {"b", "c-d"})


def entry(name: str, marker: str = "") -> Entry:
    """A package as it is installed here, as the lock has it."""
    line = Requirement(f"{name}=={version(name)}{marker and f'; {marker}'}")
    return Entry(name, version(name), line, (), frozenset())


def test_each_package_is_sorted_by_what_is_published():
    packages = {"numpy": version("numpy"), "scipy": "1.0", "pyyaml": ">=5"}
    names = ("numpy", "scipy", "pyyaml", "pandas", "click")
    entries = [*map(entry, names), entry("idna", "sys_platform == 'win32'")]
    part = compare_with_image(entries, Image("a 1", "3.12", "", packages, named=("pandas",)))
    assert part.has == [f"numpy {version('numpy')}"]
    assert part.replacements == [f"scipy 1.0 → {version('scipy')}"]
    assert (part.additions, part.not_published) == ([], ["pyyaml", "pandas", "click"])
    assert (part.conflicts, part.broken) == ([], [])
    whole = compare_with_image(
        entries, Image("a 1", "3.12", "", packages, named=("pandas",), whole=True)
    )
    assert (whole.additions, whole.not_published) == (["click"], ["pyyaml", "pandas"])


def test_what_breaks_and_what_conflicts_is_named_with_versions():
    image = Image("a 1", "3.9", "", {"numba": "0.61.0", "numpy": "1.0"})
    found = compare_with_image([entry("numpy")], image)
    assert found.broken == [f"numpy {version('numpy')} needs Python >=3.11"]
    [conflict] = found.conflicts
    assert conflict.startswith("numba 0.61.0 needs numpy<2.2,>=1.24, the job installs 2.")
    [unmet] = compare_with_image(
        [entry("scipy")], Image("a 1", "3.12", "", {"numpy": "1.0"})
    ).broken
    assert unmet.startswith(f"scipy {version('scipy')} needs numpy<")
