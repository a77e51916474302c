"""Pruning of a state directory: deleted and kept records."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import CHECKOUT, call_module
from tests.trainyard.emulator.harness import Cloud, cloud, process_step, processing, s3_input
from tests.trainyard.emulator.sagemaker.builders import join_values, register_step, wait_for_steps
from trainyard.common.errors import EmulatorError
from trainyard.emulator import damaged_state
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.pruning import (
    PruningPlan,
    measure_size,
    plan_pruning,
    prune_to_size,
)

pytestmark = pytest.mark.long

CACHE = {"Enabled": True, "ExpireAfter": "P30D"}
RUN = {"Get": "Execution.PipelineExecutionId"}
TEXT = {"Get": "Parameters.Text"}
AGES = {"old": 60, "registered": 100, "cached": 10, "source": 60, "hit": 8, "alone": 60}
"""Age of each execution in days; the cache gave ``hit`` the result of ``source`` when possible."""


def steps(register: bool) -> list[dict]:
    out = join_values("/", "s3://bkt/runs", RUN, "out")
    script = "cat /opt/ml/processing/raw/* - <<< $0 > /opt/ml/processing/out/file"
    make = process_step("Make", script, outputs={"out": out}, CacheConfig=CACHE)
    make["Arguments"]["ProcessingInputs"] = [s3_input("raw", "s3://bkt/raw")]
    make["Arguments"]["AppSpecification"]["ContainerArguments"].append(TEXT)
    return [make, register_step(out) | {"DependsOn": ["Make"]}] if register else [make]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A state directory, and the name of each execution in it."""
    state = tmp_path_factory.mktemp("made") / "aws"
    parameters = [{"Name": "Text", "Type": "String", "DefaultValue": ""}]
    with cloud(state) as aws:
        aws.put("raw/in", "raw")
        aws.put("runs/other", "put there by somebody")
        for name, register in (("plain", False), ("registers", True)):
            aws.create(name, steps(register), Parameters=parameters)
        runs = {name: ran(aws, "plain", name) for name in ("old", "cached", "source")}
        runs["hit"] = ran(aws, "plain", "source")
        assert "CacheHitResult" in aws.steps(runs["hit"])["Make"]
        runs["registered"] = ran(aws, "registers", "registered")
        request = processing("echo > /opt/ml/processing/out/f", outputs={"out": "s3://bkt/alone"})
        aws.process("alone", "", **request)
    numbers = {name: arn.rpartition("/")[2] for name, arn in runs.items()}
    for name, number in numbers.items():
        age(state / "executions" / number / "execution.json", AGES[name])
    age(state / "jobs/alone/job.json", AGES["alone"])
    return state, numbers


def ran(aws: Cloud, pipeline: str, text: str) -> str:
    arn = aws.start(pipeline, {"Text": text})
    wait_for_steps(aws, arn)
    return arn


def age(path: Path, days: float) -> None:
    """Move every time of a document back by that many days."""

    def move_times(document: object) -> object:
        if isinstance(document, dict):
            return {
                key: value - days * 86400 if key.endswith("Time") else move_times(value)
                for key, value in document.items()
            }
        return document

    path.write_text(json.dumps(move_times(json.loads(path.read_text()))))


@pytest.fixture
def state(made: tuple[Path, dict[str, str]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "aws"))


def content(state: Path) -> dict[str, bytes]:
    """Return every file except the database and its seal."""
    files = (path for path in state.rglob("*") if path.is_file() and path.stem != "index")
    return {str(path): path.read_bytes() for path in files}


@contextmanager
def store_of(state: Path) -> Iterator[ObjectStore]:
    with closing(ObjectStore(state / "s3")) as store:
        yield store


def choose_deleted_units(
    state: Path, numbers: dict[str, str], days: float | None, **more
) -> tuple[set, PruningPlan]:
    """Return the names of deleted units, and the rest of the choice."""
    names = {f"execution {number}": name for name, number in numbers.items()}
    names["job alone"] = "alone"
    seconds = None if days is None else days * 86400
    with store_of(state) as store:
        found = plan_pruning(state, store, seconds, more.pop("limit", None), **more)
    return {names[unit.name] for unit in found.units}, found


@pytest.mark.parametrize(
    "days, cached, gone",
    [
        (1000, True, set()),
        (70, True, set()),  # the registered one is older
        (30, False, {"old", "alone"}),  # the hit, which stays, has its result from the source
        (30, True, {"old", "alone"}),
        (5, False, {"old", "alone", "hit", "source"}),
        (5, True, {"old", "alone", "hit", "source", "cached"}),
    ],
)
def test_what_is_old_goes_unless_something_needs_it(made, days: float, cached: bool, gone: set):
    assert choose_deleted_units(*made, days, include_cached=cached)[0] == gone


def test_the_oldest_goes_until_the_rest_is_small_enough(made):
    size = choose_deleted_units(*made, 1000)[
        1
    ].size  # while the store is open, which has files of its own
    assert choose_deleted_units(*made, None, limit=size)[0] == set()
    first, _ = choose_deleted_units(*made, None, limit=size - 1)
    assert len(first) == 1 and first < {"old", "alone"}
    everything, found = choose_deleted_units(*made, None, limit=0)
    assert everything == {"old", "alone", "hit", "source"}
    assert 0 < found.freed_bytes < size


@given(data=st.data())
def test_nothing_that_stays_loses_anything(made, data):
    """For any options: no object of a kept execution is deleted, and less with a larger limit."""
    state, numbers = made
    size = measure_size(state)
    limits = sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2)))
    more = {name: data.draw(st.booleans()) for name in ("include_cached", "inputs")}
    most, least = (
        choose_deleted_units(state, numbers, None, limit=limit, **more) for limit in limits
    )
    assert most[0] >= least[0] and most[1].objects >= least[1].objects
    for gone, found in (most, least):
        wrote = set(numbers) - {"hit"}
        assert {key for _, key in found.objects} == {
            *(f"runs/{numbers[name]}/out/file" for name in wrote & gone),
            *({"alone/f"} & {f"{name}/f" for name in gone}),
        }


def test_a_dry_run_removes_nothing_and_what_is_left_after_a_real_one_works(state: Path, made):
    """Kept records can be described, listed, read and reused as before; deleted ones are gone."""
    numbers = made[1]
    freed = choose_deleted_units(state, numbers, 30)[1].freed_bytes
    before = content(state)
    status, said = prune(state, "--days", "30", "--dry-run")
    assert status == 0 and f"execution {numbers['old']}, 1 jobs" in said
    assert "2 executions and single jobs with 2 objects would be removed" in said
    assert content(state) == before
    status, said = prune(state, "--days", "30")
    assert status == 0 and "with 2 objects removed" in said
    sizes = [sum(map(len, files.values())) for files in (before, content(state))]
    assert sizes[0] - sizes[1] == freed > 0
    assert "0 executions" in prune(state, "--days", "30")[1]
    with cloud(state) as aws:
        listed = aws.sm.list_pipeline_executions(PipelineName="plain")["PipelineExecutionSummaries"]
        left = {run["PipelineExecutionArn"].rpartition("/")[2] for run in listed}
        assert left == {numbers[name] for name in ("cached", "source", "hit")}
        keys = aws.keys()
        assert numbers["old"] not in str(keys) and "runs/other" in keys
        assert numbers["old"] not in str(list(state.rglob("*")))
        jobs = aws.sm.list_processing_jobs()["ProcessingJobSummaries"]
        assert len(jobs) == 3
        for job in jobs:
            aws.sm.describe_processing_job(ProcessingJobName=job["ProcessingJobName"])
        described = aws.sm.describe_model_package(ModelPackageName=package_of(aws))
        folder = described["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
        assert aws.get(f"{folder.removeprefix('s3://bkt/')}/file") == b"rawregistered\n"
        again = aws.steps(ran(aws, "plain", "cached"))["Make"]
        assert again["CacheHitResult"]["SourcePipelineExecutionArn"].endswith(numbers["cached"])


def test_nothing_goes_while_a_record_that_may_name_it_is_set_aside(state: Path, made):
    """The record of a package is damaged, and only it shows that its execution is needed."""
    record = next(state.glob("registry/ModelPackage/*/*.json"))
    record.write_bytes(record.read_bytes()[:50])
    damaged_state.set_aside_damaged_documents(state)
    before = content(state)
    with pytest.raises(EmulatorError, match="damaged contains 1 files.*nothing is pruned"):
        choose_deleted_units(state, made[1], 30)
    with store_of(state) as store:  # as the start of an emulator does
        [said] = prune_to_size(state, store, 0)
    assert "nothing is pruned" in said and content(state) == before


def test_inputs_go_with_their_last_reader_and_not_while_a_pipeline_names_them(state: Path):
    def objects() -> set[str]:
        with store_of(state) as store:
            found = plan_pruning(state, store, 0.0, None, include_cached=True, inputs=True)
        return {key for _, key in found.objects}

    assert "raw/in" not in objects()
    with cloud(state) as aws:
        aws.sm.delete_model_package(ModelPackageName=package_of(aws))
        for name in ("plain", "registers"):
            aws.sm.delete_pipeline(PipelineName=name, ClientRequestToken="t" * 32)
    assert "raw/in" in objects() and "runs/other" not in objects()


def package_of(aws: Cloud) -> str:
    [package] = aws.sm.list_model_packages(ModelPackageGroupName="group")["ModelPackageSummaryList"]
    return package["ModelPackageArn"]


def prune(state: Path, *arguments: str) -> tuple[int, str]:
    done = call_module("trainyard.commands.prune", "--state", str(state), *arguments)
    return done.returncode, done.stdout + done.stderr


def test_a_directory_in_use_is_left_alone(state: Path):
    with cloud(state):
        before = content(state)
        status, said = prune(state, "--days", "0")
        assert status == 1 and "in use by another emulator" in said
        assert content(state) == before
    assert prune(state / "nowhere")[0] == 0


def test_an_emulator_starts_within_bounds(state: Path, made):
    before = content(state)
    with store_of(state) as store:
        assert prune_to_size(state, store, 5) == [] and content(state) == before
    command = [sys.executable, *"-m trainyard run --state".split(), str(state), "--keep-gb", "0"]
    done = subprocess.run(
        [*command, "--", "true"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert "removed, which nothing needs" in done.stderr
    assert "more than --keep-gb 0, and all of it may be needed" in done.stderr
    assert not (state / "executions" / made[1]["old"]).exists()
    assert (state / "executions" / made[1]["cached"]).exists()
