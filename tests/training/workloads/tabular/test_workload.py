"""Features, model and baselines: learned from the training split, the same after export."""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from tests.training.trainings import check_shares, compute_metrics, loss_of
from tests.training.workloads.tabular.tables import (
    SETTINGS,
    dataset,
    measure_baselines,
    pack,
    table,
)
from training.data.dataset import Dataset
from training.tools.contract_tests.scoring_rules import join_blocks
from training.workloads import Workload, load_workload
from training.workloads.tabular.config import SPEC
from trainyard.common.errors import DataError, TrainingError


def fit_workload(folder: Path, settings: dict = SETTINGS, **frames: pd.DataFrame) -> tuple:
    """Return (workload, the dataset that it has learned from), made of the frames by name."""
    data, found = dataset(folder, settings, frames), load_workload("tabular", settings)
    found.fit(data)
    return found, data


@pytest.fixture(scope="module")
def fitted_workload(tmp_path_factory) -> tuple[Workload, Dataset]:
    return fit_workload(tmp_path_factory.mktemp("train"), a=table(300, 1), b=table(500, 2))


@pytest.fixture
def workload(fitted_workload) -> Workload:
    return fitted_workload[0]


@pytest.fixture
def train(fitted_workload) -> Dataset:
    return fitted_workload[1]


def tensors(samples) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in samples.items()}


def rows(*values: tuple) -> dict[str, torch.Tensor]:
    """Return samples of (colour, size, weight, age)."""
    frame = pd.DataFrame(values, columns=["colour", "size", "weight", "age"]).assign(delay=0.0)
    return tensors(pack(SETTINGS, [frame])[0])


def test_the_features_are_those_of_the_training_split(workload):
    frame = pd.concat([table(300, 1), table(500, 2)])
    for name in ("weight", "age"):
        number = workload.features.numbers[name]
        assert number.mean == pytest.approx(frame[name].mean(), rel=1e-6)
        assert number.standard_deviation == pytest.approx(frame[name].std(), rel=1e-6)
    assert set(workload.features.categories["colour"].values) == {"red", "green", "blau"}
    assert set(workload.features.categories["size"].values) == {"S", "L", None}


def test_what_other_splits_hold_changes_nothing(tmp_path):
    """Values that only the test split has, and numbers of another size, have no effect."""
    found, train = fit_workload(tmp_path / "train", a=table(200, 1))
    strange = table(200, 2).assign(colour="violet", weight=lambda frame: frame["weight"] * 1000)
    test = dataset(tmp_path / "test", SETTINGS, {"a": strange})
    before = dict(found.files())
    compute_metrics(found, found.model().eval(), test)
    measure_baselines(found, train, test, 10**6)
    assert dict(found.files()) == before
    assert "violet" not in before["features.json"].decode()


def test_the_features_do_not_depend_on_who_counted_what(tmp_path):
    objects = {name: table(100, seed) for seed, name in enumerate("abcd")}
    one, _ = fit_workload(tmp_path / "one", **objects)
    other, _ = fit_workload(tmp_path / "other", **dict(reversed(objects.items())))
    assert one.files() == other.files()


def test_rare_values_and_new_ones_share_an_embedding(tmp_path):
    found, _ = fit_workload(
        tmp_path, a=table(50).assign(colour=["red"] * 47 + ["twice"] * 2 + ["once"])
    )
    batch = rows(*((value, "S", 0, 0) for value in ("once", "never", None, "red", "twice")))
    ids = found.model().encoder.encode_hashes(batch["categories"])[:, 0].tolist()
    assert ids[:3] == [0, 0, 0] and sorted(ids[3:]) == [1, 2]


def test_every_known_value_has_an_id_of_its_own(workload):
    encoder = workload.model().encoder
    pairs = list(itertools.product(("red", "green", "blau"), ("S", "L", None)))
    ids = encoder.encode_hashes(rows(*((*pair, 0, 0) for pair in pairs))["categories"]).tolist()
    for column in range(2):
        seen = {(pair[column], found[column]) for pair, found in zip(pairs, ids, strict=True)}
        assert sorted(number for _, number in seen) == [1, 2, 3]
    assert encoder.sizes == [4, 4]


def test_columns_share_no_embedding(workload):
    model = workload.model()
    total, _ = loss_of(workload, model, rows(("red", "S", 0, 0), ("green", "L", 0, 0)))
    total.backward()
    assert model.embedding.weight.grad.abs().sum(dim=1).count_nonzero() == 4


def test_numbers_are_normalised_cut_off_far_out_and_missing_ones_are_flagged(workload, train):
    encoder = workload.model().encoder
    samples = train.read(np.arange(len(train)))
    found = encoder.normalize_numbers(torch.from_numpy(samples["numbers"])).numpy()
    missing = np.isnan(samples["numbers"])
    assert np.isfinite(found).all()
    assert (found[:, 2:] == missing).all() and missing[:, 1].any()
    assert (found[:, :2][missing] == 0).all()
    weight = found[:, 0]
    assert (weight.mean(), weight.std()) == pytest.approx((0, 1), abs=0.01)
    far = rows(("red", "S", 1e9, -1e9))["numbers"]
    assert encoder.normalize_numbers(far)[0].tolist() == [4, -4, 0, 0]


def test_a_column_that_never_changes_is_no_division_by_zero(tmp_path):
    found, _ = fit_workload(tmp_path, a=table(50).assign(weight=7.0, age=np.nan))
    encoded = found.model().encoder.normalize_numbers(torch.tensor([[7.0, torch.nan], [7.0, 3.0]]))
    assert encoded.tolist() == [[0, 0, 0, 1], [0, 3, 0, 0]]


@pytest.mark.parametrize("without", ["categories", "numbers"])
def test_either_kind_of_column_is_enough(tmp_path, without):
    found, train = fit_workload(tmp_path, SETTINGS | {without: []}, a=table(200))
    total, count = loss_of(found, found.model(), tensors(train.read(np.arange(20))))
    total.backward()
    assert count == 20 and total.isfinite()
    baselines = measure_baselines(found, train, train, 100)
    assert baselines["logistic_regression"]["log_loss"] < baselines["base_rate"]["log_loss"]


def test_the_loss_is_a_sum_over_rows(workload, train):
    model, batch = workload.model(), tensors(train.read(np.arange(10)))
    total, count = loss_of(workload, model, batch)
    logits = model(batch["categories"], batch["numbers"])
    assert count == 10
    expected = F.binary_cross_entropy_with_logits(logits, batch["label"].float(), reduction="none")
    assert total.item() == pytest.approx(expected.sum().item(), rel=1e-6)


def test_the_features_travel_with_the_model(workload, train, tmp_path):
    for name, content in workload.files().items():
        (tmp_path / name).write_bytes(content)
    arrived = load_workload("tabular", SETTINGS, tmp_path)
    assert arrived.features == workload.features
    assert arrived.files() == workload.files()
    model, other = workload.model().eval(), arrived.model().eval()
    other.load_state_dict(model.state_dict())
    samples = tensors(train.read(np.arange(50)))
    inputs = samples["categories"], samples["numbers"]
    assert torch.equal(model(*inputs), other(*inputs))


def test_a_model_without_its_features_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="features.json: is missing beside the model"):
        load_workload("tabular", SETTINGS, tmp_path).model()


@pytest.mark.parametrize("content", ["{", "[]", '{"numbers": {}}', '{"numbers": {"a": {"x": 1}}}'])
def test_damaged_features_are_refused(tmp_path, content):
    (tmp_path / "features.json").write_text(content)
    with pytest.raises(DataError, match="features.json: is damaged"):
        load_workload("tabular", SETTINGS, tmp_path)


@pytest.mark.parametrize("kind", ["dropout", "embedding_dropout"])
def test_dropout_is_for_training_alone(tmp_path, kind):
    found, train = fit_workload(tmp_path, SETTINGS | {kind: 0.5}, a=table(50))
    model, batch = found.model(), tensors(train.read(np.arange(20)))
    inputs = batch["categories"], batch["numbers"]
    assert not torch.equal(model(*inputs), model(*inputs))
    model.eval()
    assert torch.equal(model(*inputs), model(*inputs))


def test_training_learns_what_no_straight_line_can(workload, train, tmp_path):
    test = dataset(tmp_path / "test", SETTINGS, {"a": table(400, 3)})
    torch.manual_seed(0)
    model = workload.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    batch = tensors(train.read(np.arange(len(train))))
    for _ in range(60):
        optimizer.zero_grad()
        total, count = loss_of(workload, model, batch)
        (total / count).backward()
        optimizer.step()
    found = compute_metrics(workload, model.eval(), test)
    baselines = measure_baselines(workload, train, test, 10**6)
    assert set(found) == set(baselines["base_rate"]) == {"log_loss", "auc", "accuracy", "brier"}
    assert found["accuracy"]["value"] > 0.85
    assert found["log_loss"]["value"] < baselines["logistic_regression"]["log_loss"] - 0.1
    assert found["auc"]["value"] > baselines["logistic_regression"]["auc"] + 0.1
    assert json.dumps(baselines, allow_nan=False)


def test_a_row_says_its_slices_in_the_words_of_the_data(tmp_path):
    found, _ = fit_workload(tmp_path / "train", a=table(200, 1))
    frame = table(60, 2)
    frame.loc[:4, "colour"] = "violet"
    test = dataset(tmp_path / "test", SETTINGS, {"b": frame})
    columns = join_blocks(list(found.scores(found.model().eval(), test, ["colour", "size"])))
    sizes, colours = frame["size"].fillna("missing"), frame["colour"].replace("violet", "other")
    assert columns["slice.size"].tolist() == sizes.tolist()
    assert columns["slice.colour"].tolist() == colours.tolist()
    assert columns["label"].tolist() == (frame["delay"] > 15).astype(int).tolist()
    assert columns["group"].tolist() == list(range(60))  # each row by itself


def test_a_row_says_which_input_it_comes_from_unless_a_column_is_called_so(tmp_path):
    """Uses a dataset of two units; a mixture's units have a folder before their names."""
    found, test = fit_workload(tmp_path, web=table(30, 2), code=table(9, 3))
    columns = join_blocks(list(found.scores(found.model().eval(), test, ["source", "colour"])))
    assert columns["slice.source"].tolist() == ["code"] * 9 + ["web"] * 30
    assert columns["group"].tolist() == list(range(39))
    named = SPEC.config.model_validate({"categories": ["source"], "label": "delay"})
    assert SPEC.get_input_slice(SPEC.config(**SETTINGS)) == "source"
    assert SPEC.get_input_slice(named) is None and SPEC.slices(named).count("source") == 2


def test_the_metrics_are_those_of_the_scores(workload, train):
    blocks = list(workload.scores(workload.model().eval(), train))
    columns, found = join_blocks(blocks), workload.metrics(blocks)
    assert {f"{metric}.sum" for metric in SPEC.compared_in} == {n for n in columns if ".sum" in n}
    for name in SPEC.compared_in:
        ratio = columns[f"{name}.sum"].sum() / columns[f"{name}.weight"].sum()
        assert found[name]["value"] == pytest.approx(ratio, rel=1e-12)
    assert columns["probability"].dtype == np.float64  # near 1 float32 has few values
    again = [block["example"] for block in workload.examples(train)]
    assert np.concatenate(again).tolist() == columns["example"].tolist()


def test_the_rows_of_shares_are_those_of_the_whole(workload, train, monkeypatch):
    monkeypatch.setattr(type(workload), "at_once", 137)
    check_shares(workload, workload.model().eval(), train, ["colour"])


def test_another_model_is_scored_on_the_same_rows_with_the_same_slices(workload, train, tmp_path):
    """The champion learned another vocabulary: the challenger decides the slices."""
    frame = table(300, 7).assign(colour="green")
    older, _ = fit_workload(tmp_path, SETTINGS | {"hidden": [8]}, z=frame)
    ours, theirs = (
        list(workload.scores(model.eval(), train, ["colour"]))
        for model in (workload.model(), older.model())
    )
    for one, other in zip(ours, theirs, strict=True):
        for name in ("example", "group", "slice.colour", "label"):
            assert one[name].tolist() == other[name].tolist()
        assert one["log_loss.sum"].tolist() != other["log_loss.sum"].tolist()
        assert set(other["slice.colour"]) == {"red", "green", "blau"}


def test_rows_of_a_group_are_told_apart_from_others(tmp_path):
    frame = table(90).assign(day=(np.arange(90) % 9).astype(str))
    found, data = fit_workload(tmp_path, SETTINGS | {"group": "day"}, a=frame)
    [block] = found.scores(found.model().eval(), data)
    assert len(np.unique(block["group"])) == 9
    [one] = found.examples(data)
    assert one["group"].tolist() == block["group"].tolist()
