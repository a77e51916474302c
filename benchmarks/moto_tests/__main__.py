"""Run moto's own tests against the emulator.

python -m benchmarks.moto_tests CHECKOUT [--service S]

CHECKOUT is a checkout of github.com/getmoto/moto, best at the tag of the moto that is installed;
its tests need freezegun, too. Each test has a fresh emulator over HTTP in the place of mock_aws. A
test is ``refused`` when an operation that it called was refused by name, and ``text`` when nothing
but a message differs. Exit status 1 when one is wrong that ``ARGUED`` does not
argue.
"""

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
import yaml

from benchmarks.harness import CHECKOUT, JsonFile, show_outcomes, write_json
from benchmarks.moto_tests.plugin import RESULTS

ARGUED = yaml.safe_load(Path(__file__).with_name("argued.yaml").read_text(encoding="utf-8"))
OUTCOMES = ("passed", "text", "argued", "refused", "wrong", "skipped")


def find_argument(test: str, message: str) -> str:
    """Return why a test may fail with a message; an empty text if it may not."""
    fit = (a for a in ARGUED if fnmatch.fnmatchcase(test, a["test"]) and a["came"] in message)
    return next((one["reason"] for one in fit), "")


def main(
    checkout: Annotated[Path, typer.Argument(help="A checkout of getmoto/moto.")],
    service: Annotated[str, typer.Option(help="Its folder tests/test_<service>.")] = "sagemaker",
    verified: Annotated[bool, typer.Option(help="Only what was verified against AWS.")] = False,
    only: Annotated[str, typer.Option("-k", help="pytest's -k.")] = "",
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: pytest's own.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Print what passes, is refused, and is wrong; exit 1 when anything is wrong."""
    found = run_tests(checkout, service, verified, only, workers)
    if not found:
        raise SystemExit(f"{checkout}/tests/test_{service}: no test ran")
    show_outcomes(found, sorted({each["group"] for each in found}), OUTCOMES)
    write_json(json_file, found)
    raise typer.Exit(1 if any(each["outcome"] == "wrong" for each in found) else 0)


def run_tests(
    checkout: Path, service: str, verified: bool = False, only: str = "", workers: int = 0
) -> list[dict[str, str]]:
    """Run a service's tests; return sorted dicts of ``test``, ``group``, ``outcome``, ``why``."""
    with tempfile.TemporaryDirectory(prefix="moto-tests-") as folder:
        results = Path(folder) / "results.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.moto_tests.plugin"]
        command += ["-p", "no:cacheprovider", f"--rootdir={checkout}", "--timeout=120"]
        command += [f"--basetemp={folder}/tmp", "-n", str(workers), "--tb=short", "--color=no"]
        command += ["-m", "aws_verified"] if verified else []
        command += ["-k", only] if only else []
        command += [str((checkout / "tests" / f"test_{service}").resolve())]
        environment = {**os.environ, RESULTS: str(results)}
        path = [str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        if verified:
            environment["MOTO_TEST_ALLOW_AWS_REQUEST"] = "true"  # as they are run against AWS
        subprocess.run(command, cwd=folder, env=environment, stdout=sys.stderr, check=False)
        lines = results.read_text().splitlines() if results.exists() else []
    found = [mark_argued(json.loads(line)) for line in lines]
    ended = [each | {"group": _get_file_name(each)} for each in found]
    return sorted(ended, key=lambda each: each["test"])


def mark_argued(each: dict[str, str]) -> dict[str, str]:
    """Change ``wrong`` to ``argued``, with the reason, for a test that AWS itself would fail."""
    reason = find_argument(each["test"].rpartition("/")[2], each["why"])
    if each["outcome"] == "wrong" and reason:
        return each | {"outcome": "argued", "why": reason}
    return each


def _get_file_name(each: dict[str, str]) -> str:
    return each["test"].partition("::")[0].rpartition("/")[2]


if __name__ == "__main__":
    typer.run(main)
