"""A workload of four methods, and the defaults that it gets."""

import json
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.training.trainings import CHECKOUT, TOYS, check_shares, compute_metrics, loss_of, losses
from training.data.dataset import Dataset
from training.data.shard_writer import write_dataset
from training.defaults.request_batch import ROWS, build_batch, to_json_values
from training.export.artifact import load_artifact
from training.export.inference import ServedModel
from training.strategies.mesh import share_sequences
from training.tools.contract_tests.scoring_rules import join_blocks
from training.workloads import Column, load_packing, load_spec, load_workload
from training.workloads.simple import Simple
from trainyard.common.errors import DataError, TrainingError

pytestmark = pytest.mark.long

NAME = "toys.lines"
COLOURS = ("red", "green", "blue")


@pytest.fixture(autouse=True)
def _toy_import_path(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(TOYS))


def records(count: int, seed: int = 0) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    x, size = random.normal(size=count), random.integers(0, 4, count).astype(float)
    return pa.RecordBatch.from_pydict(
        {
            "x": x,
            "size": size,
            "colour": pa.array([COLOURS[n % 3] for n in range(count)]).dictionary_encode(),
            "note": pa.array([None if n % 5 == 0 else "é" * (n % 4) for n in range(count)]),
            "y": 2 * x + size,
        }
    )


def write(folder, count: int, seed: int = 0, *, shard_bytes: int = 4000, **unit) -> Dataset:
    found = load_packing(NAME, {})
    samples = found.packer().add(records(count, seed))
    given = {"shard_bytes": shard_bytes, "workload": found.info} | unit
    write_dataset(folder, samples, found.fields, **given)
    return Dataset(folder)


def test_what_a_recipe_needs_follows_from_the_class():
    found = load_spec(NAME)
    assert (found.metrics, found.primary_metric) == ({"loss": "lower"}, "loss")
    assert (found.baselines, found.packed_with) == (("constant",), ())
    assert found.refuse_split(None, 2, 1)


def test_the_shard_step_needs_no_torch():
    code = f"""
import sys
from training.workloads import load_packing, load_spec
load_spec({NAME!r}), load_packing({NAME!r}, {{}})
assert "torch" not in sys.modules
"""
    environment = {"PYTHONPATH": f"{CHECKOUT}:{TOYS}"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_columns_are_packed_as_they_are_declared(tmp_path):
    train = write(tmp_path, 40)
    order = np.argsort(train.read(range(40))["x"])
    samples = train.read(order)
    expected = records(40)
    numbers = expected.column("x").to_numpy()
    np.testing.assert_array_equal(samples["x"], np.sort(numbers.astype(np.float32)))
    assert samples["size"].dtype == np.uint8
    assert len(set(samples["colour"].tolist())) == 3
    bounds = pairwise(samples["note_offsets"])
    texts = [samples["note"][start:stop].tobytes().decode() for start, stop in bounds]
    notes = expected.column("note").fill_null("").to_pylist()
    assert texts == [notes[n] for n in np.argsort(numbers)]


@pytest.mark.parametrize("wrong", [0.5, -1.0, 256.0, float("nan")])
def test_a_number_that_its_type_does_not_hold_is_named(wrong):
    batch = records(3).to_pydict() | {"size": [1.0, wrong, 2.0]}
    batch["colour"] = pa.array(batch["colour"]).dictionary_encode()
    with pytest.raises(DataError, match=r"column size: .* is not a valid uint8"):
        load_packing(NAME, {}).packer().add(pa.RecordBatch.from_pydict(batch))


def test_too_large_a_number_makes_its_record_bad():
    assert load_packing(NAME, {}).columns["x"].limit == 2.0**128 - 2.0**103


def test_an_integer_column_has_no_value_for_a_missing_number():
    class Gaps(Simple):
        columns = {"user": Column("number", required=False, dtype="int64")}

    with pytest.raises(TrainingError, match=r"column user: .*leave out required=False.*float32"):
        Gaps.derive_packing()(None, None)


def make_workload(kind: type[Simple]) -> Simple:
    return kind(kind.derive_packing()(None, None))


def build_request_batch(workload: Simple, *records: dict) -> dict[str, torch.Tensor]:
    """Return the batch of requests with these records, as they arrive from JSON."""
    requests = json.loads(json.dumps([workload.request(record) for record in records]))
    return build_batch(workload, requests, torch.device("cpu"))


class Users(Simple):
    columns = {"user": Column("number", dtype="int64"), "cart": Column("list", dtype="uint64")}

    def inputs(self, batch):
        return batch["user"], batch["cart"], batch["cart_offsets"]


def test_a_request_has_the_whole_numbers_of_its_record():
    """A training and its endpoint see the same user, however large the number."""
    users = [2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
    records = [{"user": user, "cart": [abs(user), 2**64 - 1]} for user in users]
    batch = build_request_batch(make_workload(Users), *records)
    assert batch["user"].tolist()[:4] == users
    assert batch["cart"].tolist()[:8] == [n for one in records for n in one["cart"]]


def test_it_trains_scores_and_answers(tmp_path, train):
    root = tmp_path / "ml"
    known, held_out = (
        write(root / f"input/data/{name}", 64, seed)
        for seed, name in enumerate(("train", "validation"))
    )
    train(root, workload=NAME, max_steps=40)
    curve = losses(root)
    assert curve[40] < curve[1] / 2
    workload, model, _ = load_artifact(root / "model")
    found = compute_metrics(workload, model, held_out)
    whole = {name: torch.from_numpy(a) for name, a in held_out.read(range(64)).items()}
    with torch.no_grad():
        total, units = loss_of(workload, model, whole)
    assert units == 64
    assert found["loss"]["value"] == pytest.approx(float(total) / 64)
    constant = workload.baselines(known, held_out, 1000)["constant"]
    mean = known.read(range(64))["y"].mean()
    expected = np.square(held_out.read(range(64))["y"] - mean).mean()
    assert constant == {"loss": pytest.approx(expected, rel=1e-4)}
    served = ServedModel(workload, model)
    answer = served.answer({"record": {"x": 1.0, "size": 2, "colour": "red"}})
    assert json.loads(json.dumps(answer))["outputs"][0] == pytest.approx(4, abs=2)
    with pytest.raises(DataError, match="has no colour, size, which the model uses"):
        served.answer({"record": {"x": 1.0}})
    with pytest.raises(DataError, match="no column z"):
        served.answer({"record": {"x": 1.0, "z": 1}})


def test_operations_are_counted_and_leave_nothing_behind(tmp_path):
    workload = load_workload(NAME, {})
    model, state = workload.model(), torch.get_rng_state()
    assert workload.flops(model) == 6 * (3 * 8 + 8)
    workload.fit(write(tmp_path, 8))
    assert workload.flops(model) == 6 * (3 * 8 + 8)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_equal_samples_have_equal_names_and_groups_are_the_columns(tmp_path):
    one, found = write(tmp_path / "a", 30), load_packing(NAME, {})
    turned = found.pack(records(30).take(pa.array(range(29, -1, -1))))
    write_dataset(tmp_path / "b", turned, found.fields, shard_bytes=200)
    workload = load_workload(NAME, {})
    first, second = (
        join_blocks(list(workload.examples(each))) for each in (one, Dataset(tmp_path / "b"))
    )
    assert len(set(first["example"].tolist())) == 30
    assert set(first["example"].tolist()) == set(second["example"].tolist())
    assert len(set(first["group"].tolist())) == 3


def test_what_is_not_written_is_named():
    class Half(Simple):
        pass

    half = Half(load_packing(NAME, {}))
    with pytest.raises(NotImplementedError, match="Workload has no loss"):
        half.loss(None, {})
    with pytest.raises(TrainingError, match="set tensor_parallel to 1"):
        half.tensor_parallel(None, None)
    with pytest.raises(
        TrainingError, match="no part and no context_parallel, .*to 1, or implement"
    ):
        share_sequences(half, None, SimpleNamespace(size=lambda: 2))
    with pytest.raises(TrainingError, match=r"no stage\(\).*set pipeline_parallel to 1"):
        half.stage(None, 0, 2)


class Everything(Simple):
    """A column of each kind; the model uses those that a test names."""

    columns = {
        "list": Column("list", length=2, dtype="int16"),
        "any": Column("list"),
        "at": Column("timestamp"),
        "image": Column("bytes", required=False),
    }
    looks = ("any", "any_offsets", "at", "image", "list")

    def inputs(self, batch):
        return tuple(batch[name] for name in self.looks)


def test_a_request_is_packed_as_a_record_is():
    workload = make_workload(Everything)
    raw = {
        "list": pa.array([[1.0, -2.0]] * ROWS),
        "any": pa.array([[0.5, 1.5, 2.5]] * ROWS),
        "at": pa.array([86_400_000_000] * ROWS),
        "image": pa.array([b"\x00\xff"] * ROWS, pa.binary()),
    }
    packed = workload.packing.pack(pa.RecordBatch.from_pydict(raw))
    shapes = {"list": (2,), "any": None, "at": (), "image": None}
    assert {name: field.shape for name, field in workload.packing.fields.items()} == shapes
    at = "1970-01-02T02:00:00+02:00"
    record = {"list": [1, -2], "any": [0.5, 1.5, 2.5], "at": at, "image": "AP8="}
    batch = build_batch(workload, [{"record": record}] * 3, torch.device("cpu"))
    assert batch.keys() == packed.keys()
    for name, values in packed.items():
        np.testing.assert_array_equal(batch[name], values)
        assert batch[name].numpy().dtype == values.dtype
    with pytest.raises(DataError, match="has no any, at, which the model uses"):
        build_batch(workload, [{"record": {"list": [1, 2], "image": None}}], torch.device("cpu"))


def test_the_request_for_a_record_is_packed_as_the_record():
    """As batch scoring asks: columns that the model does not use are not read."""
    workload = make_workload(Everything)
    raw = pa.RecordBatch.from_pydict({
        "list": pa.array([[1.0, -2.0], [3.0, 4.0]]),
        "any": pa.array([[0.1, 1 / 3], []], pa.list_(pa.float64())),
        "at": pa.array([1_700_000_000_000_001, -1]),
        "image": pa.array([None, b"\x00\xff"], pa.binary()),
    })  # fmt: skip
    columns = workload.request_columns
    assert columns == workload.packing.columns
    values = [to_json_values(column, raw.column(name)) for name, column in columns.items()]
    batch = build_request_batch(
        workload, *(dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
    )
    filled = raw.take(pa.array([0] + [1] * (ROWS - 1)))
    for name, expected in workload.packing.pack(filled).items():
        np.testing.assert_array_equal(batch[name], expected)
    workload.looks = ("at", "any")
    assert set(workload.request_columns) == {"at", "any"}


FLOATS, WHOLE = "expected numbers that float32 holds", "expected a number that int64 holds"


@pytest.mark.parametrize(("kind", "name", "value", "expected"), [
    (Everything, "list", 3, "expected numbers"),
    (Everything, "list", ["a", "b"], "expected numbers"),
    (Everything, "any", [True], "expected numbers"),
    *((Everything, "any", [value], FLOATS) for value in (1e39, float("inf"), -(10**400))),
    (Everything, "at", "yesterday", "expected a time in ISO 8601"),
    (Everything, "image", "a", "expected base64"),
    *((Users, "user", value, WHOLE)
      for value in (2**63, 0.5, 2.0**53, float("nan"), 10**400, True, "7")),
])  # fmt: skip
def test_a_wrong_value_of_a_request_is_named(kind, name, value, expected):
    with pytest.raises(DataError, match=rf"record\.{name}: is .*{expected}"):
        build_batch(make_workload(kind), [{"record": {name: value}}], torch.device("cpu"))


def test_a_module_whose_workload_has_no_defaults_says_what_it_lacks(tmp_path, monkeypatch):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/work.py").write_text("class Workload:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TrainingError, match=r"bare\.work has a Workload and no SPEC; derive"):
        load_spec("bare.work")


def test_a_sample_says_which_input_it_comes_from(tmp_path):
    for name, count in {"web": 30, "code": 7}.items():
        unit = {"host": f"algo-{name}", "unit": f"{name}/000000-of-000001"}
        test = write(tmp_path, count, count, shard_bytes=400, **unit)
    workload = load_workload(NAME, {})
    workload.fit(test)
    columns = join_blocks(list(workload.scores(workload.model().eval(), test, ["source"])))
    assert columns["slice.source"].tolist() == ["code"] * 7 + ["web"] * 30
    workload.at_once = 5
    check_shares(workload, workload.model().eval(), test, ["source"])
    assert load_spec(NAME).get_input_slice(None) == "source"


def test_a_method_that_nothing_calls_any_more_is_named():
    with pytest.raises(TrainingError, match="implement answers"):
        type("Workload", (Simple,), {"answer": lambda self, model, request: {}})
