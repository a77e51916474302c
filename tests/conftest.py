"""What many tests need: running our command lines as a user does, and an emulator to talk to."""

import contextlib
import functools
import gc
import importlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

# As in the emulator's jobs: several workers share the cores, and a thread of OpenMP that spins
# while it waits takes them from those it waits for. Before anything loads OpenMP, which reads it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import settings

from tests import answer_shapes

# No deadlines: a busy machine is not a defect of the code. Each run draws new examples, so
# 15 in make test meet as many in a few runs as the usual 100, which make test-all takes.
settings.register_profile("thorough", deadline=None)
settings.register_profile("trainyard", deadline=None, max_examples=15)
settings.load_profile("trainyard")

# botocore parses a service's model anew for each session, and each module has sessions of its own.
_parsed = functools.lru_cache(64)(functools.partial(JSONFileLoader.load_file, JSONFileLoader()))
_fresh = JSONFileLoader.load_file
# A client of S3 takes the bucket out of its model's addresses, and the emulator reads them there.
JSONFileLoader.load_file = lambda loader, path: (
    _fresh(loader, path) if re.search("/data/s3/.*/service-2$", path) else _parsed(path)
)

answer_shapes.install()

CHECKOUT = Path(__file__).parent.parent
AWS_NAMES = ("AWS_", "SAGEMAKER_", "ARTIFACT_BUCKET", "CODEBUILD_")


QUICK = "not slow and not long and not sweep"
"""Marker expression of ``make check``."""
WHOLE_FILE = re.compile(r"^pytestmark = .*\bmark\.(slow|long)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which ``make check`` runs nothing before what they import is loaded."""
    if config.option.markexpr != QUICK or collection_path.suffix != ".py":
        return None
    return bool(WHOLE_FILE.search(collection_path.read_text(encoding="utf-8"))) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start real jobs come first: at the end no core waits for the other's long one."""
    for item in items:
        if "emulator" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.emulated)
        if "benchmarks" in item.path.parts and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.sweep)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collection makes hardly any garbage, and what it made is not looked through afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """After each file, exclude what it has imported from later collections of garbage.

    A worker comes to hold a million objects. To look through them, as a job that fails does and a
    model that is built on meta, took an eighth of the workers' time.
    """
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.fixture(scope="module", autouse=True)
def machine_keeps_its_opt_ml() -> Iterator[None]:
    """Fail the module that writes to this machine's /opt/ml, which notebooks and Studio have."""

    def listing() -> set[tuple[str, int]]:
        paths = [Path("/opt/ml"), *Path("/opt/ml").rglob("*")]
        return {(str(path), path.lstat().st_mtime_ns) for path in paths if path.exists()}

    before = listing()
    yield
    assert listing() == before


@pytest.fixture(autouse=True)
def answers_have_their_shape() -> Iterator[None]:
    """Fail the test in which an answer of the emulator broke botocore's output shape."""
    yield
    broken, answer_shapes.VIOLATIONS[:] = sorted(set(answer_shapes.VIOLATIONS)), []
    assert not broken, "\n".join(broken)


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that configures AWS."""
    return {k: v for k, v in os.environ.items() if not k.startswith(AWS_NAMES)}


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run this Python in the checkout, with an empty HOME and no AWS in the environment."""

    def run(*arguments: str, env: dict[str, str] | None = None, cwd: Path = CHECKOUT, **kwargs):
        environment = clean_environment() | {"HOME": str(tmp_path), "COLUMNS": "200"} | (env or {})
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            **kwargs,
        )

    return run


def call_module(module: str, *arguments: str) -> subprocess.CompletedProcess:
    """What ``python -m module ARGUMENTS`` does, in this process, in this process's environment.

    The start of an interpreter that loads the SDK takes seconds: a test that is about what a verb
    does, and not about how it is started, need not wait for another one.
    """
    from trainyard.terminal import run

    out, errors = io.StringIO(), io.StringIO()
    status: int | str | None = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            run(importlib.import_module(module).main, module, arguments)
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(
        [module, *arguments], int(status or 0), out.getvalue(), errors.getvalue()
    )


def process(emulator, home: Path, name: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run one of our verbs on the emulator as a user does: in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", f"pipelines.{name}", *arguments],
        env=clean_environment() | emulator.env | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's emulator keeps its state."""
    return tmp_path_factory.mktemp("aws")


@pytest.fixture(scope="module")
def emulator(state: Path) -> Iterator:
    """An emulator of this module's own; ``emulator.env`` points a command line at it."""
    import boto3

    from trainyard.emulator.server import serve_emulator

    boto3.DEFAULT_SESSION = None  # it remembers the credentials of another module's
    with serve_emulator(state=state) as endpoint:
        yield endpoint
    boto3.DEFAULT_SESSION = None


@pytest.fixture(scope="module")
def aws_environment(emulator) -> Iterator[None]:
    """Point this process, and those that it starts, at the module's emulator."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.env.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def small_corpus(aws_environment) -> None:
    """Put thirty texts where recipes/laptop.yaml looks for its data."""
    import boto3

    from pipelines.corpora.stdlib import pack_sources

    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="trainyard-laptop")
    texts = [(f"file-{n}", f"def f{n}(x):\n    return x + {n}\n" * 20) for n in range(30)]
    for name, content in pack_sources(iter(texts)).items():
        s3.put_object(Bucket="trainyard-laptop", Key=f"raw/python-stdlib/{name}", Body=content)


@pytest.fixture(scope="module")
def aws(emulator):
    """Clients by service name, pointed at this module's emulator."""
    import boto3

    session = boto3.Session(
        aws_access_key_id=emulator.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=emulator.env["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    return lambda service: session.client(service, endpoint_url=emulator.url)
