"""Seeded faults are reported by the rule that they break; a sound workload breaks none.

Those that only show in other processes are tried in the sweep, as the command tries them.
"""

import pyarrow as pa
import pyarrow.json
import pytest

from tests.training.tools.contract_tests.faults import FAULTS, lines, write
from training.data.shard_writer import slice_samples, write_dataset
from training.tools.contract_tests.contract import Trial, check_rules
from training.tools.contract_tests.packing_rules import SPLITS
from training.tools.contract_tests.try_command import check_workload, list_rules
from training.workloads import load_packing

pytestmark = pytest.mark.long

ELSEWHERE = {"imports", "packing", "trains", "deterministic", "resumes", "strategies"}
HERE = [rule for rule in list_rules() if rule.name not in ELSEWHERE]


@pytest.fixture(autouse=True)
def _path(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "code"))


def trial(fault, package, folder) -> Trial:
    name = write(fault, folder / "code", package)
    (folder / "lists.jsonl").write_text(lines())
    packing = load_packing(name, {})
    [records] = pa.json.read_json(folder / "lists.jsonl").to_batches()
    colours = records.column("colour").dictionary_encode()
    samples = packing.add(records.set_column(1, "colour", colours))
    for number, split in enumerate(SPLITS):
        piece = slice_samples(samples, packing.fields, number * 60, number * 60 + 60)
        target = folder / "data" / split
        write_dataset(target, piece, packing.fields, shard_bytes=400, workload=packing.info)
    return Trial(name, {}, folder / "data")


def test_a_sound_workload_breaks_no_rule(tmp_path):
    verdicts = list(check_rules(trial(None, "sound", tmp_path), HERE))
    assert {v.rule.name: v.why_not for v in verdicts if v.why_not} == {}
    assert [fault for verdict in verdicts for fault in verdict.faults] == []


@pytest.mark.parametrize(
    "number", [n for n, fault in enumerate(FAULTS) if not ELSEWHERE & set(fault.rules)]
)
def test_a_fault_is_named_by_the_rule_that_it_breaks(number, tmp_path):
    fault = FAULTS[number]
    tried = trial(fault, f"seeded_{number}", tmp_path)
    for verdict in check_rules(tried, HERE):
        if verdict.faults:
            break
    assert verdict.rule.name in fault.rules
    first = verdict.faults[0]
    assert f"seeded_{number}" in first.location
    assert first.observation
    assert first.fix


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(-1, len(FAULTS)))
def test_the_command_names_each_fault_and_none_of_the_sound_workload(number, tmp_path):
    fault = FAULTS[number] if number >= 0 else None
    workload = write(fault, tmp_path / "code", f"tried_{number + 1}")
    for name in ("raw", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "raw/lists.jsonl").write_text(lines())
    verdicts = check_workload(workload, "{}", tmp_path / "raw", tmp_path / "work")
    broken = next((verdict.rule.name for verdict in verdicts if verdict.faults), "")
    assert broken in (fault.rules if fault else ("",))


def test_a_loss_over_the_batch_is_said_in_our_words_unless_it_is_declared(tmp_path):
    [fault] = [one for one in FAULTS if one.what == "a loss over the pairs of the batch"]
    tried = trial(fault, "pairs", tmp_path)
    first = next(one for verdict in check_rules(tried, HERE) for one in verdict.faults)
    assert first.observation.startswith("the loss of 8 samples is ")
    assert "a sample's loss depends on the others in its micro-batch, as with InfoNCE" in first.fix
    type(tried.shared_workload).by_batch = True
    [rule] = [one for one in HERE if one.name == "loss is a sum"]
    assert list(rule.check(tried)) == []


def test_faults_are_of_rules_that_there_are():
    names = {rule.name for rule in list_rules()}
    assert {name for fault in FAULTS for name in fault.rules} <= names
    assert {name for rule in list_rules() for name in rule.needs} <= names


def test_what_a_broken_rule_is_needed_for_is_not_checked(tmp_path):
    [fault] = [one for one in FAULTS if one.what == "the logarithm of zero"]
    verdicts = list(check_rules(trial(fault, "unsound", tmp_path), HERE))
    broken = [verdict.rule.name for verdict in verdicts if verdict.faults]
    assert broken == ["runs"]
    waiting = {v.rule.name for v in verdicts if "broken" in v.why_not}
    assert waiting == {rule.name for rule in HERE} - {"shards", "runs"}


def test_the_command_names_what_it_finds_and_ends_with_1(tmp_path, run_python):
    [fault] = [one for one in FAULTS if one.what == "a mean over the samples"]
    name = write(fault, tmp_path / "code", "mean")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/lists.jsonl").write_text(lines(100))
    folders = ("--data", str(tmp_path / "raw"), "--source", str(tmp_path / "code"))
    done = run_python("-m", "training.tools.try", name, *folders, "--only", "loss is a sum")
    assert done.returncode == 1
    assert "✗ loss is a sum" in done.stdout
    assert "use reduction='sum'" in " ".join(done.stdout.split())
    assert "mean/work.py" in "".join(done.stdout.split())
