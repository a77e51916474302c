"""The gate job on scores of single examples: good evidence, bad evidence, no champion."""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from conditions.alpha_spending import compute_significance_level
from steps.gate import job
from tests.conditions.evidence import CHAMPION, Evidence
from tests.conditions.test_verdict import CHECK_KEYS, KEYS

pytestmark = pytest.mark.long

COMPARED = [
    "--non_inferiority", "loss", "lower", "0.02", "--superiority", "loss", "lower", "0",
    "--slice_regression", "loss", "lower", "0.05",
    "--max_calibration_error", "0.2", "--min_examples", "1000",
]  # fmt: skip
ABSOLUTE = [
    "--max_leaked_examples", "0", "--max_leaked_groups", "0.1", "--max_latency_p95_ms", "10",
    "--max_artifact_mb", "5", "--threshold", "max_loss", "9",
]  # fmt: skip


def gate(root: Path, *arguments: str, champion: str | None = CHAMPION) -> dict:
    words = ["--primary_metric", "loss", "--direction", "lower", "--look", "1", *arguments]
    words += ["--root", str(root)]
    job.main(words + (["--champion", champion] if champion else []))
    text = (root / "processing/output/gate/gate.json").read_text()
    found = json.loads(text, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert set(found) == KEYS and all(set(check) == CHECK_KEYS for check in found["checks"])
    assert found["reason"] and all(check["reason"] for check in found["checks"])
    return found


def list_failed_checks(found: dict) -> set[str]:
    return {check["name"] for check in found["checks"] if not check["passed"]}


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return Evidence().write(tmp_path_factory.mktemp("good"))


@pytest.fixture
def root(good: Path, tmp_path: Path) -> Path:
    """Good evidence of the test's own, to be spoilt."""
    shutil.copytree(good / "processing/input", tmp_path / "processing/input")
    return tmp_path


def test_good_evidence_passes_and_everything_is_told(root: Path):
    found = gate(root, *COMPARED, *ABSOLUTE)
    assert found["verdict"] == "pass", found["reason"]
    undeclared = {name for name, outcome in found["kinds"].items() if outcome == "none"}
    assert undeclared == {"baseline"}
    by_name = {check["name"]: check for check in found["checks"]}
    superior = by_name["superiority_loss"]
    assert superior["low"] < superior["value"] < superior["high"]
    assert superior["value"] == pytest.approx(superior["champion"] - superior["challenger"])
    assert superior["challenger"] == pytest.approx(found["metrics"]["loss"])
    assert superior["champion"] == pytest.approx(found["champion_metrics"]["loss"])
    assert superior["confidence"] == pytest.approx(
        1 - compute_significance_level(0.05, look_number=1)
    )
    assert superior["threshold"] == 0
    assert found["champion"] == CHAMPION
    assert (found["examples"], found["groups"], found["test_fingerprint"]) == (1200, 60, "test")
    assert found["artifact_sha256"] == "challenger's"
    assert found["champion_artifact_sha256"] == "champion's"
    assert sorted(part["slice"] for part in found["slices"]) == ["kind=a", "kind=b", "kind=c"]
    assert gate(root, *COMPARED, *ABSOLUTE) == found  # the same scores, the same verdict


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (Evidence(improvement=0.0), {"non_inferiority_loss", "superiority_loss"}),
        (Evidence(improvement=0.01, noise=0.01), set()),
        (Evidence(improvement=-0.01, noise=0.01), {"superiority_loss"}),
        (Evidence(improvement=0.2, bad_slice=0.4), {"slice_regression_loss"}),
        (Evidence(groups=15, per_group=80, noise=0.05), {"min_effective_groups"}),
        (Evidence(per_group=16), {"min_examples"}),
    ],
    ids=["equal", "better by little", "not worse", "bad slice", "few groups", "few"],
)
def test_each_check_stops_what_it_is_for(tmp_path: Path, evidence: Evidence, expected: set):
    found = gate(evidence.write(tmp_path), *COMPARED[:-4], "--min_examples", "1000")
    assert list_failed_checks(found) == expected
    assert found["verdict"] == ("reject" if expected else "pass")


@pytest.mark.parametrize("policy", ["pass", "reject"])
def test_without_a_champion_the_recipes_policy_counts_and_other_checks_are_made(tmp_path, policy):
    root = Evidence(champion=None).write(tmp_path)
    found = gate(root, *COMPARED, *ABSOLUTE, "--cold_start", policy, champion="none")
    assert (found["verdict"], found["cold_start"], found["champion"]) == (policy, policy, "none")
    compared = {check["reason"] for check in found["checks"] if check["value"] is None}
    [reason] = compared
    assert "no champion" in reason and f"gate.cold_start decides: {policy}" in reason
    assert found["examples"] == 1200 and found["kinds"]["calibration"] == "pass"
    stopped = gate(root, *COMPARED, "--threshold", "max_loss", "0.1", champion="none")
    assert list_failed_checks(stopped) == {"max_loss"}


def test_a_gate_that_compares_nothing_judges_the_scores_beside_a_champion_too(root: Path):
    found = gate(root, "--max_calibration_error", "0.2", "--min_examples", "1000", *ABSOLUTE)
    assert found["verdict"] == "pass" and found["kinds"]["non_inferiority"] == "none"


def test_looks_and_the_champion_must_have_been_told_and_a_later_look_has_wider_limits(root: Path):
    """The tenth look may spend a 360th of what the first may; slices, where it takes proof to
    stop a model, keep their level.
    """
    first, tenth = (gate(root, *COMPARED, "--look", look) for look in ("1", "10"))
    assert (first["look"], tenth["look"]) == (1, 10)
    (early, worst), (late, same) = (
        [next(c for c in found["checks"] if c["kind"] == kind)
         for kind in ("superiority", "slice_regression")]
        for found in (first, tenth)
    )  # fmt: skip
    assert late["low"] < early["low"] and worst == same
    for uncounted, champion, reason in (
        (("--look", "0"), CHAMPION, "the looks at this test split were not counted"),
        ((), None, "python -m pipelines.start"),
    ):
        found = gate(root, *COMPARED, *uncounted, champion=champion)
        assert found["verdict"] == "reject" and reason in found["reason"]
    assert found["champion"] == "unresolved"


def change(model: str, edit):
    """An edit of a file of scores."""

    def spoil(root: Path) -> None:
        path = root / f"processing/input/scores/{model}.parquet"
        parquet.write_table(edit(parquet.read_table(path)), path)

    return spoil


def column(name: str, values):
    def edit(table: pa.Table) -> pa.Table:
        new = values(table.column(name).to_numpy().copy())
        return table.set_column(table.schema.get_field_index(name), name, pa.array(new))

    return edit


def put(index: int, value):
    return lambda array: np.r_[array[:index], np.array([value], array.dtype), array[index + 1 :]]


def change_description(of: str, **changes):
    def edit(table: pa.Table) -> pa.Table:
        told = json.loads(table.schema.metadata[b"trainyard"]) | changes
        return table.replace_schema_metadata({"trainyard": json.dumps(told).encode()})

    return change(of, edit)


def change_evaluation(**changes):
    def spoil(root: Path) -> None:
        path = root / "processing/input/evaluation/evaluation.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return spoil


def gone(name: str):
    return lambda root: (root / f"processing/input/scores/{name}").unlink()


def replace_scores(name: str, content: bytes):
    return lambda root: (root / f"processing/input/scores/{name}").write_bytes(content)


def move_groups(table: pa.Table) -> pa.Table:
    """The same examples, in other groups."""
    group = pa.array(table.column("group").to_numpy() + 1000)
    return table.set_column(table.schema.get_field_index("group"), "group", group)


LEAK = {"examples": 1, "groups": 0, "checked_examples": 1200, "checked_groups": 60}


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (gone("champion.parquet"), "champion.parquet: is missing"),
        (gone("challenger.parquet"), "challenger.parquet: is missing"),
        (lambda root: shutil.rmtree(root / "processing/input/scores"), "is missing"),
        (replace_scores("champion.parquet", b""), "cannot be read"),
        (replace_scores("champion.parquet", b"PAR1"), "cannot be read"),
        (change("challenger", lambda t: t.slice(0, 0)), "holds no examples"),
        (change("champion", lambda t: t.slice(0, 1100)), "holds 1100 examples, 1100 of the 1200"),
        (change("champion", column("example", put(7, 99_999))), "1199 of the 1200 of challenger"),
        (change("challenger", column("example", lambda a: a * 0)), "one example is in several"),
        (change("challenger", lambda t: pa.concat_tables([t, move_groups(t)])), "leave out copies"),
        (change("champion", column("group", put(7, 99_999))), "its column group differs"),
        (change("champion", column("loss.weight", put(7, 99.5))), "its column loss.weight differs"),
        (change("challenger", column("loss.sum", put(7, np.nan))), "a score is not finite"),
        (change("champion", column("loss.sum", put(7, np.inf))), "a score is not finite"),
        (change("champion", column("loss.sum", lambda a: -a)), "the champion's loss is"),
        (change("challenger", column("probability", put(7, np.nan))), "not between 0 and 1"),
        (change("challenger", column("label", put(7, 3))), "neither 0 nor 1"),
        (change("challenger", column("loss.sum", lambda a: [*a[:-1], None])), "lacks values"),
        (change("challenger", column("loss.sum", lambda a: a.astype(str))), "loss.sum is string"),
        (change("challenger", lambda t: t.drop_columns("slice.kind")), "has no slice"),
        (change("challenger", lambda t: t.drop_columns("label")), "0 columns label"),
        (change("champion", lambda t: t.append_column("group", t.column("group"))), "2 columns"),
        (
            change_description("challenger", model="champion"),
            "is not a table of scores of the challenger",
        ),
        (change_description("challenger", champion="arn:other"), "scores of champion arn:other"),
        (
            change_description("challenger", metrics={"loss": "higher"}),
            "for loss, higher values are better",
        ),
        (change_description("challenger", metrics=None), "for loss, None values are better"),
        (change_description("challenger", test_fingerprint="x"), "scores are of test split x"),
        (change_description("challenger", artifact_sha256=None), "scores are of artifact None"),
        (change_description("champion", test_fingerprint="x"), "scored on test split x"),
        (change_evaluation(champion={"arn": "none"}), "the evaluation scored champion none"),
        (change_evaluation(champion=None), "the evaluation scored champion None"),
        (change_evaluation(champion={"arn": None, "error": "champion x: no model"}), "x: no model"),
        (change_evaluation(metrics={"loss": {"value": 1.5}}), "but 1.5 in evaluation.json"),
        (change_evaluation(metrics={"loss": {"value": None}}), "but missing in evaluation.json"),
        (change_evaluation(artifact={"bytes": 3, "sha256": "other"}), "the evaluation of other"),
        (change_evaluation(leakage=LEAK), "(1 of 1200) may be at most 0"),
        (change_evaluation(leakage=None), "which test examples are in train"),
        (change_evaluation(latency={"p95_ms": 11}), "latency_p95_ms is 11"),
        (change_evaluation(latency={"p95_ms": "4"}), "latency.p95_ms is missing"),
        (change_evaluation(artifact={"bytes": 6e6, "sha256": "challenger's"}), "artifact_mb is 6"),
    ],
)
def test_bad_evidence_is_rejected_with_its_reason(root: Path, spoil, reason: str):
    spoil(root)
    found = gate(root, *COMPARED, *ABSOLUTE)
    assert found["verdict"] == "reject" and reason in found["reason"]


def test_scores_of_a_champion_that_there_is_not_are_rejected(root: Path):
    found = gate(root, *COMPARED, champion="none")
    assert found["verdict"] == "reject"
    change_evaluation(champion={"arn": "none"})(root)
    assert "but no champion" in gate(root, *COMPARED, champion="none")["reason"]


@given(data=st.data())
def test_torn_and_flipped_files_never_pass_and_never_raise(tmp_path_factory, good: Path, data):
    """Every page has a checksum, so a flipped bit never reaches a number."""
    root = tmp_path_factory.mktemp("torn")
    shutil.copytree(good / "processing/input", root / "processing/input")
    name = data.draw(st.sampled_from(["challenger", "champion"]))
    path = root / f"processing/input/scores/{name}.parquet"
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:where]
    else:
        content[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    found = gate(root, *COMPARED)
    if found["verdict"] == "pass":  # a byte that no number depends on
        whole = gate(good, *COMPARED)
        assert found == whole
    shutil.rmtree(root)


garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
PATHS = [
    ("metrics", "loss", "value"), ("champion", "arn"), ("champion", "metrics", "loss", "value"),
    ("dataset", "fingerprint"), ("dataset", "test_fingerprint"), ("artifact", "sha256"),
    ("artifact", "bytes"), ("latency", "p95_ms"), ("leakage", "examples"),
    ("leakage", "checked_examples"), ("leakage", "checked_groups"), ("metrics",), ("champion",),
    ("dataset",), ("artifact",), ("latency",), ("leakage",),
]  # fmt: skip


@given(path=st.sampled_from(PATHS), put=st.none() | garbage)
def test_any_piece_of_the_evaluation_replaced_by_garbage(good: Path, path, put):
    inside = good / "processing/input/evaluation/evaluation.json"
    whole = inside.read_text()
    evaluation = copy.deepcopy(json.loads(whole))
    inner = evaluation
    for key in path[:-1]:
        inner = inner[key]
    before, inner[path[-1]] = inner[path[-1]], put
    try:
        inside.write_text(json.dumps(evaluation))
        found = gate(good, *COMPARED, *ABSOLUTE)
    finally:
        inside.write_text(whole)
    numbers = isinstance(before, int | float) and isinstance(put, int | float)
    text = path == ("dataset", "fingerprint") and isinstance(put, str) and put
    if not (numbers or text):
        assert found["verdict"] == "reject"


def test_neighbouring_groups_that_are_alike_show_less(tmp_path: Path):
    """Improvements in long waves: their scores say that the groups have an order."""
    waves = 0.05 + 0.2 * np.sin(np.arange(60) / 5)
    found = {}
    for ordered in (False, True):
        evidence = Evidence(improvement=waves, noise=0.01)
        evidence.changes = {"challenger": {"groups_ordered": ordered}}
        found[ordered] = gate(evidence.write(tmp_path / str(ordered)), *COMPARED)
    lows = [{c["name"]: c for c in one["checks"]}["superiority_loss"] for one in found.values()]
    assert lows[0]["value"] == pytest.approx(lows[1]["value"])
    assert lows[0]["low"] > lows[1]["low"] + 0.03
    assert "neighbouring groups being alike" in lows[1]["reason"]
    assert "neighbouring groups being alike" not in lows[0]["reason"]


def test_the_order_of_the_rows_does_not_matter(root: Path):
    before = gate(root, *COMPARED)
    for seed, model in enumerate(("challenger", "champion")):
        order = np.random.default_rng(seed).permutation(1200)
        change(model, lambda table, order=order: table.take(order))(root)
    after = gate(root, *COMPARED)
    for one, other in zip(before["checks"], after["checks"], strict=True):
        numbers = ("value", "low", "high", "threshold")
        assert {n: one[n] for n in numbers} == pytest.approx({n: other[n] for n in numbers})
        assert one["passed"] == other["passed"]


def test_copies_of_a_record_within_its_group_count_together(root: Path):
    """Equal rows of a table have one name and one group."""
    for model in ("challenger", "champion"):
        change(model, column("example", lambda a: np.arange(1200) // 2))(root)
    found = gate(root, *COMPARED[:-4])
    assert found["examples"] == 600 and found["groups"] == 60, found["reason"]
    assert found["verdict"] == "pass"


def judge_answers(root: Path, wins: int, losses: int, *words: str) -> dict:
    """Judge questions, each a group of its own, that one of two models has answered."""
    evidence = Evidence(groups=wins + losses, per_group=1)
    evidence.weight = np.ones(wins + losses)
    wrong = np.r_[np.zeros(wins), np.ones(losses)]
    evidence.sums = {"challenger": wrong, "champion": 1 - wrong}
    return gate(evidence.write(root), *words, "--superiority", "loss", "lower", "0")


RANGE = ("--range", "loss", "lower", "1")


@pytest.mark.parametrize("words", [(), RANGE], ids=["approximate", "betting"])
@pytest.mark.parametrize(
    ("wins", "losses", "verdict"),
    [(55, 45, "reject"), (65, 35, "pass"), (100, 0, "pass"), (29, 1, "pass")],
)
def test_wins_and_losses_of_single_questions(tmp_path: Path, words, wins, losses, verdict):
    found = judge_answers(tmp_path, wins, losses, *words)
    [check] = [check for check in found["checks"] if check["kind"] == "superiority"]
    assert found["verdict"] == verdict, found["reason"]
    assert check["method"] == ("betting" if words else "approximate")
    assert ("approximate: no range" in check["reason"]) == (not words)


GAINS = st.lists(st.floats(-0.3, 0.6), min_size=30, max_size=30)


@given(gains=GAINS, place=st.integers(0, 29), raised=st.floats(0.01, 1e6))
def test_a_better_example_never_turns_pass_into_reject_in_any_check(
    tmp_path_factory, gains, place, raised
):
    words = [*COMPARED[:12], "--min_groups", "10", "--min_slice_examples", "1",
             "--min_slice_groups", "5", "--threshold", "max_loss", "9"]  # fmt: skip
    evidence = Evidence(groups=30, per_group=1, improvement=np.array(gains), noise=0.01)
    root = tmp_path_factory.mktemp("better")
    before = gate(evidence.write(root / "before"), *words)
    evidence.sums["challenger"][place] -= raised * evidence.weight[place]
    after = gate(evidence.write(root / "after"), *words)
    passed = {check["name"] for check in after["checks"] if check["passed"]}
    assert {check["name"] for check in before["checks"] if check["passed"]} <= passed


def test_a_clip_makes_an_unbounded_loss_a_bounded_one(tmp_path: Path):
    one = np.full(60, 0.05)
    one[7] = -30.0
    root = Evidence(improvement=one, noise=0.01).write(tmp_path)
    plain, clipped = (
        next(c for c in gate(root, *COMPARED, *words)["checks"] if c["kind"] == "superiority")
        for words in ((), ("--clip", "loss", "lower", "0.1"))
    )
    assert (plain["method"], clipped["method"]) == ("approximate", "betting")
    assert plain["value"] < 0 < clipped["value"] and not plain["passed"] and clipped["passed"]
    found = gate(root, *COMPARED, "--range", "loss", "lower", "0.01")  # values lie beyond it
    assert found["verdict"] == "reject" and "correct gate.range" in found["reason"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change_description("baseline-trees", test_fingerprint="other"), "baseline trees"),
        (
            change_description("baseline-trees", model="champion"),
            "not a table of scores of the base",
        ),
        (change("baseline-trees", column("loss.sum", lambda a: a * np.nan)), "not finite"),
        (change("baseline-trees", lambda t: t.slice(1)), "baseline-trees.parquet: "),
        (change_evaluation(baselines={"trees": {"loss": 99.0}}), "trees's loss is"),
    ],
)
def test_a_baselines_bad_scores_are_rejected(tmp_path: Path, spoil, reason: str):
    spoil(Evidence(baseline=0.1).write(tmp_path))
    found = gate(tmp_path, "--superiority", "loss", "lower", "0")
    assert found["verdict"] == "reject" and reason in found["reason"]
