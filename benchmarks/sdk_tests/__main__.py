"""Run AWS's own tests of its SDK.

python -m benchmarks.sdk_tests CHECKOUT [--only PATTERN]

CHECKOUT is a checkout of github.com/aws/sagemaker-python-sdk, at a tag 2.257.x or of version 3. Its
tests of pipelines, and of version 3 its notebooks, run as they are, but for what
``changes.yaml`` lists, each against a fresh emulator, in a venv with that SDK, which
is made once. The table says what the declared work came to, not the test's colour. Exit status 1
when a test is vacuous.
"""

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import CHECKOUT, JsonFile, show_outcomes, track_steps, write_json
from benchmarks.sdk_tests.judge import CHANGES, VERDICTS, judge_test

INSIDE = Path(__file__).parent / "inside"
SDK = {2: "sagemaker==2.257.1", 3: "sagemaker==3.27.0"}
_BOTH = (
    *("pytest", "pytest-timeout", "ipython", "awscli"),
    # AWS's models of XGBoost 0.90 and 1.3 are in a format that 3.1 no longer reads
    *("torch==2.13.0", "scikit-learn", "pandas<3", "pytz", "xgboost-cpu<3.1"),
    *("setuptools>=77,<81", "stopit", "awslogs", "nbformat", "cloudpickle"),
    *("gevent", "paramiko", "retrying", "inotify_simple==1.2.1", "werkzeug", "psutil", "scipy"),
)
_NOTEBOOKS = ("sagemaker-headless-execution-driver", "ipykernel")
"""What the tests of NotebookJob install into AWS's image."""
_TOOLKITS = ("sagemaker-training", "sagemaker-pytorch-training==3.0.0", "sagemaker-inference")
"""Toolkits of AWS's images, installed without their requirements, which need older Pythons."""


def read_major_version(checkout: Path) -> int:
    """Return the major version, 2 or 3, of the SDK in the checkout."""
    version = (checkout / "VERSION").read_text()
    if version[:1] not in ("2", "3"):
        raise SystemExit(f"{checkout}/VERSION: {version.strip()!r}; expected 2.x or 3.x")
    return int(version[0])


def prepare_interpreter(folder: Path, version: int) -> Path:
    """Return the interpreter of ``folder/sdk<version>``; create that venv if it is missing."""
    venv = folder / f"sdk{version}"
    found = venv / "bin/python"
    done = venv / "complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        wanted = [SDK[version], *_BOTH, *_NOTEBOOKS]
        for what in (wanted, ["--no-deps", *_TOOLKITS]):
            command = [found, "-m", "pip", "install", "--quiet", *what]
            subprocess.run(command, check=True, stdout=sys.stderr)
        packages = next(venv.glob("lib/python3.*/site-packages"))
        shutil.copytree(INSIDE / "torchvision", packages / "torchvision")
        shutil.copy(INSIDE / "joblib_of_old.py", packages / "sklearn/externals/joblib.py")
        done.touch()
    return found


def main(
    checkout: Annotated[Path, typer.Argument(help="A checkout of aws/sagemaker-python-sdk.")],
    only: Annotated[str, typer.Option(help="A pattern (fnmatch) of tests' ids.")] = "*",
    seconds: Annotated[int, typer.Option(help="For one test.")] = 600,
    json_file: JsonFile = None,
) -> None:
    """Print the table; exit 1 when a test is green and nothing happened."""
    checkout = checkout.resolve()
    python = prepare_interpreter(CHECKOUT / ".trainyard/sdk-tests", read_major_version(checkout))
    _write_missing_data(checkout, python)
    given = {"checkout": str(checkout), "python": str(python), "seconds": seconds}
    tests = [each for each in iter_tests(checkout, python) if fnmatch.fnmatch(each[1], only)]
    results = []
    with ThreadPoolExecutor(2) as pool:
        specifications = [given | {"root": root, "test": test} for root, test in tests]
        ended = pool.map(_run_trial, specifications)
        for _ in track_steps("tests", [test for _, test in tests]):
            results.append(next(ended))
    rows = []
    for one in results:
        verdict = judge_test(one["test"], one["passed"], one["output"], one)
        why = " ".join(verdict.reason.split())[:400]
        rows.append({"test": one["test"], "group": "", "outcome": verdict.verdict, "why": why})
    show_outcomes(rows, [], VERDICTS)
    write_json(json_file, results)
    raise typer.Exit(any(row["outcome"] == "vacuous" for row in rows))


def _write_missing_data(checkout: Path, python: Path) -> None:
    """Write the data that no snapshot of the repository holds: random digits."""
    folders = [checkout / folder for folder in CHANGES["mnist"][read_major_version(checkout)]]
    subprocess.run([python, Path(__file__).parent / "inside/digits.py", *folders], check=True)


def iter_tests(checkout: Path, python: Path) -> Iterator[tuple[str, str]]:
    """Yield (folder in which pytest runs, ID) of every test; a notebook's ID is its path."""
    version = read_major_version(checkout)
    root = {2: "", 3: "sagemaker-mlops"}[version]
    inner = [path.removeprefix(f"{root}/") for path in CHANGES["tests"][version]]
    yield from _iter_collected_tests(checkout, python, root, inner)
    for path in sorted((checkout / CHANGES["notebooks"]).glob("**/*.ipynb")):
        if version == 3 and "feature-store" not in str(path):
            yield "", str(path.relative_to(checkout))


def _iter_collected_tests(
    checkout: Path, python: Path, root: str, paths: Sequence[str]
) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        fixtures = Path(folder) / "fixtures.json"
        fixtures.write_text("{}")
        inside = str(Path(__file__).parent / "inside")
        done = subprocess.run(
            [python, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=",
             "-p", "no:cacheprovider", *paths],
            cwd=checkout / root, capture_output=True, text=True, check=False,
            env=os.environ | {"AWS_DEFAULT_REGION": "us-west-2", "PYTHONPATH": inside,
                              "SDK_TESTS_FIXTURES": str(fixtures)},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"pytest cannot collect the tests:\n{done.stdout[-3000:]}")
    for line in done.stdout.splitlines():
        if "::" in line:
            yield root, line.strip()


def _run_trial(specification: dict[str, Any]) -> dict[str, Any]:
    """Run one test in a process of its own; return what ``benchmarks.sdk_tests.trial`` found."""
    with tempfile.TemporaryDirectory(prefix="sdk-test-", ignore_cleanup_errors=True) as folder:
        result = Path(folder) / "result.json"
        file = Path(folder) / "asked.json"
        file.write_text(json.dumps(specification | {"folder": folder, "result": str(result)}))
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.sdk_tests.trial", file],
            cwd=CHECKOUT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.exists():
            return json.loads(result.read_text()) | {"emulator": done.stderr[-2000:]}
    return {
        "test": specification["test"], "passed": False, "seconds": 0, "output": done.stderr[-3000:],
        "asked": {}, "pretended": [], "refusals": [], "executions": [], "jobs": [],
    }  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
