"""Run Ceph's S3 tests against the emulator.

python -m benchmarks.s3tests CHECKOUT

CHECKOUT is a checkout of github.com/ceph/s3-tests. Its tests run in an environment of their own,
against a fresh emulator; by default only those of the core groups. A test is ``refused`` when an
answer that it got was a 501, and ``wrong`` when it failed without one. Exit status 1 when one is
wrong that ``ARGUED`` does not argue.
"""

import ast
import configparser
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Annotated

import typer
import yaml

from benchmarks.harness import JsonFile, show_outcomes, write_json
from trainyard.emulator.server import Endpoint, serve_emulator

ARGUED = {
    test: one["reason"]
    for one in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    for test in one["tests"]
}
FILE = "s3tests/functional/test_s3.py"
OUTCOMES = ("passed", "argued", "refused", "wrong")
PLUGIN = "RESULTS_OF_S3_TESTS"
INSTALLED = "boto3 pytest pytest-timeout PyYAML munch isodate requests pytz httplib2 lxml".split()

GROUPS = {  # the first whose expression is in a test's name is its group
    "checksums": "checksum|cksum",
    "post object": "post_object",
    "multipart": "multipart|upload_part",
    "versioning": "version|delete_marker",
    "tagging": "tag",
    "copy": "copy",
    "conditional": "ifmatch|ifnon|ifmod|ifunmod|if_match|if_none",
    "listing": "list|basic_key_count",
    "objects": "object|obj|atomic|ranged|100_continue",
    "buckets": "bucket",
}
_SUBJECTS = re.compile(  # other subjects than the groups'
    "_acl|cors|object_lock|tenant|public_block|policy_status|access_bucket|anon|website|torrent|"
    "_logging|block_public|ignore_public|notification|ownership|bucket_policy|with_policy"
)
_MARKS = set(  # tests that AWS, or Ceph's own gateway, fails; and the same other subjects
    "fails_on_aws fails_on_rgw bucket_logging encryption sse_s3 bucket_encryption lifecycle "
    "lifecycle_expiration lifecycle_transition cloud_transition cloud_restore bucket_policy "
    "object_ownership iam_account iam_user".split()
)
_OTHERS = re.compile("get_(unauthenticated|alt|tenant|iam|svc)")  # clients: the emulator has one


def main(
    checkout: Annotated[Path, typer.Argument(help="A checkout of ceph/s3-parse_tests.")],
    only: Annotated[
        str, typer.Option("-k", help="Only parse_tests with this in their names.")
    ] = "",
    every: Annotated[bool, typer.Option(help="Not only the core groups.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Print what passes, is refused, and is wrong; exit 1 when anything is wrong."""
    source = (checkout / FILE).read_text()
    known = parse_tests(source) if every else choose_core_tests(source)
    names = [name for name in known if only in name]
    if not names:
        raise SystemExit(f"{checkout / FILE}: no test is chosen")
    found = run_tests(checkout, names)
    show_outcomes(found, [*GROUPS, ""] if every else [*GROUPS], OUTCOMES)
    write_json(json_file, found)
    raise typer.Exit(1 if any(each["outcome"] == "wrong" for each in found) else 0)


def parse_tests(source: str) -> dict[str, ast.FunctionDef]:
    """Return name → function of every test in the file's source."""
    found = [f for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)]
    return {f.name: f for f in found if f.name.startswith("test_")}


def choose_core_tests(source: str) -> list[str]:
    """Return the tests of the core groups: S3 in general, by one account with its key."""
    chosen, lines = [], source.splitlines()
    for name, test in parse_tests(source).items():
        marks = set(re.findall(r"mark\.(\w+)", " ".join(map(ast.unparse, test.decorator_list))))
        other = _OTHERS.search("\n".join(lines[test.lineno - 1 : test.end_lineno]))
        if find_group(name) and not marks & _MARKS and not _SUBJECTS.search(name) and not other:
            chosen.append(name)
    return chosen


def find_group(name: str) -> str:
    """Return the group of a test; an empty text if it is in none."""
    return next((group for group, words in GROUPS.items() if re.search(words, name)), "")


def run_tests(checkout: Path, names: list[str]) -> list[dict[str, str]]:
    """Run the tests; return ``test``, ``group``, ``outcome`` and ``why`` of each, in this order."""
    with tempfile.TemporaryDirectory(prefix="s3-tests-") as folder:
        here = Path(folder)
        python = _create_environment(here / "environment")
        (here / "s3_results.py").write_text(_PLUGIN)
        with serve_emulator(here / "aws") as endpoint:
            _write_configuration(checkout, endpoint, here / "s3.conf")
            command = [str(python), "-m", "pytest", "-q", "-p", "s3_results", "--tb=no"]
            command += ["-p", "no:cacheprovider", "--timeout=120", f"--rootdir={checkout}"]
            environment = {
                "PATH": os.environ["PATH"],
                "S3TEST_CONF": str(here / "s3.conf"),
                PLUGIN: str(here / "results.jsonl"),
                "PYTHONPATH": folder,
                "AWS_EC2_METADATA_DISABLED": "true",
            }
            command += [f"{FILE}::{name}" for name in names]
            subprocess.run(command, cwd=checkout, env=environment, stdout=sys.stderr, check=False)
        results = here / "results.jsonl"
        lines = results.read_text().splitlines() if results.exists() else []
    raw = {each["test"]: each for each in map(json.loads, lines)}
    return [judge_outcome(name, raw.get(name)) for name in names]


def judge_outcome(name: str, raw: dict | None) -> dict[str, str]:
    """Return a test's outcome; ``raw``: the plugin's line, None if the test did not run."""
    one = {"test": name, "group": find_group(name)}
    if raw is None:
        return one | {"outcome": "wrong", "why": "It did not run: see pytest's own output."}
    if raw["passed"]:
        return one | {"outcome": "passed", "why": ""}
    if raw["refusals"]:
        return one | {"outcome": "refused", "why": raw["refusals"][-1]}
    if name in ARGUED:
        return one | {"outcome": "argued", "why": ARGUED[name]}
    return one | {"outcome": "wrong", "why": raw["why"]}


_PLUGIN = f'''"""Writes what became of each test, with the 501s that its requests were answered."""
import json, os
import pytest, urllib3

seen = []
ask = urllib3.connectionpool.HTTPConnectionPool.urlopen


def watched(pool, method, url, *args, **more):
    answer = ask(pool, method, url, *args, **more)
    if answer.status == 501:
        seen.append(f"a 501 to {{method}} {{url}}"[:200])
    return answer


urllib3.connectionpool.HTTPConnectionPool.urlopen = watched


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "setup" and report.passed:
        seen.clear()
    if report.when == "call" or (report.when == "setup" and not report.passed):
        why = f"{{call.excinfo.typename}}: {{call.excinfo.value}}"[:300] if call.excinfo else ""
        line = {{"test": item.name, "passed": report.passed, "refusals": seen, "why": why}}
        with open(os.environ["{PLUGIN}"], "a") as file:
            file.write(json.dumps(line) + "\\n")
    return report
'''


def _create_environment(folder: Path) -> Path:
    """Create a virtual environment with what the tests need; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *INSTALLED], check=True)
    return python


def _write_configuration(checkout: Path, endpoint: Endpoint, target: Path) -> None:
    """Write the suite's own sample with the emulator's address and its one key."""
    sample = configparser.RawConfigParser()
    sample.read(checkout / "s3tests.conf.SAMPLE")
    host, _, port = endpoint.url.removeprefix("http://").partition(":")
    sample["DEFAULT"].update({"host": host, "port": port, "is_secure": "False"})
    owner = {"user_id": "emulator", "display_name": "emulator"}
    sample["s3 main"].update({"api_name": "eu-west-1"} | owner)
    for section in sample.sections():
        if sample.has_option(section, "access_key"):
            sample[section]["access_key"] = endpoint.env["AWS_ACCESS_KEY_ID"]
            sample[section]["secret_key"] = endpoint.env["AWS_SECRET_ACCESS_KEY"]
    with target.open("w") as file:
        sample.write(file)
    target.chmod(0o600)


if __name__ == "__main__":
    typer.run(main)
