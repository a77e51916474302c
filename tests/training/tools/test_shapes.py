"""Traced shapes match the formulas, for any workload, and advise can read them."""

from functools import cache

import pytest

from tests.training.trainings import TOYS
from tests.training.workloads.tabular import tables
from tests.training.workloads.test_simple import write
from training.tools.shapes import load_batch, trace_shapes
from training.workloads import load_workload
from trainyard.common.errors import TrainingError
from trainyard.foresight import model_shapes as foresight
from trainyard.foresight.setting import Setting

pytestmark = pytest.mark.long

MODEL = {"context_length": 64, "layers": 3, "heads": 4, "dim": 64, "hidden_dim": 160,
         "vocabulary": 512}  # fmt: skip


def read_traced_shapes(name: str, settings: dict, data=None, samples: int = 2) -> foresight.Shapes:
    workload = load_workload(name, settings, data)
    return foresight.parse_shapes(
        trace_shapes(workload, load_batch(workload, data, samples), samples)
    )


@cache
def language_model() -> foresight.Shapes:
    return read_traced_shapes("language_model", MODEL)


def by_formula(**differs: object) -> foresight.Shapes:
    given = {"gpu": "H100-80", "layers": 3, "hidden": 64, "heads": 4, "ffn": 160, "gated": True}
    given |= {"vocab": 512, "tied": True, "sequence": 64}
    return foresight.derive_shapes(Setting.model_validate(given | differs))


@pytest.mark.parametrize("tied", [pytest.param(True, marks=pytest.mark.sweep), False])
def test_the_language_models_are_those_of_the_formulas(tied: bool):
    untied = {"tie_embeddings": False, "layers": 1}
    found = language_model() if tied else read_traced_shapes("language_model", MODEL | untied)
    expected = by_formula(tied=tied, layers=3 if tied else 1)
    whole = ("sequence", "logits", "tied", "parameters", "trained", "matmul_flops")
    for name in (*whole, "attention_flops"):
        assert getattr(found, name) == getattr(expected, name), name
    unit = ("name", "count", "parameters", "trained", "replicated", "matmul_flops", "output_bytes")
    for one, other in zip(found.units, expected.units, strict=True):
        for name in unit:
            assert getattr(one, name) == getattr(other, name), (one.name, name)


def test_a_block_keeps_what_the_formula_says_and_what_this_model_copies():
    """Queries, keys and values are one product, so selective keeps the keys, too; each norm keeps a
    number per row.
    """
    block, expected = (one.units[1].kept for one in (language_model(), by_formula()))
    more = {"none": 2 * 4, "selective": 2 * 64, "full": 0}
    for policy, copied in more.items():
        whole = expected[policy].compute_rank_bytes(1, sequence_parallel=False) + copied
        assert block[policy].compute_rank_bytes(1, sequence_parallel=False) == whole, policy
    assert block["none"].whole == 4 * 2 * 64 + 2 * 4, "input and output of both norms"


def test_elementwise_work_is_as_eager_kernels_move_it():
    """The formula counts the rotation of queries and keys in 16 bits; ours rotates in float32."""
    found, expected = language_model().units[1], by_formula().units[1]
    assert expected.elementwise_bytes < found.elementwise_bytes < 2.5 * expected.elementwise_bytes


def test_a_simple_workload_with_ragged_samples(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    workload = load_workload("toys.lines", {})
    with pytest.raises(TrainingError, match=r"note has no fixed width; give --data"):
        load_batch(workload, None, 2)
    write(tmp_path, 8)
    found = read_traced_shapes("toys.lines", {}, tmp_path, 8)
    (one,) = found.units
    assert (one.name, one.parameters, one.matmul_flops) == ("model", 41, 2 * (3 * 8 + 8))
    assert (found.sequence, found.logits, found.tied) == (1, 1, False)
    assert {policy: kept.split for policy, kept in one.kept.items()}.keys() == one.kept.keys()
    assert all(kept.split == 0 for kept in one.kept.values()), "it is split over no ranks"


@pytest.mark.sweep
def test_weights_that_autocast_narrows_are_kept_by_no_token(tmp_path, monkeypatch):
    """A bfloat16 copy of 41 weights is alive besides what the 8 samples keep."""
    monkeypatch.syspath_prepend(str(TOYS))
    write(tmp_path, 8)
    few, many = (read_traced_shapes("toys.lines", {}, tmp_path, samples) for samples in (1, 8))
    assert few.units[0].kept == many.units[0].kept


@pytest.mark.sweep
def test_a_model_that_looks_at_numbers_is_traced_in_real_memory(monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    workload = load_workload("toys.ragged", {})
    make = workload.model

    def looking():
        model = make()
        model.register_forward_pre_hook(read_largest_number)
        return model

    def read_largest_number(_, given) -> None:
        given[0].max().item()

    samples = load_batch(workload, None, 2)
    (plain,) = trace_shapes(workload, samples, 2)["units"]
    workload.model = looking
    (found,) = trace_shapes(workload, samples, 2)["units"]
    assert found.pop("elementwise_bytes") > plain.pop("elementwise_bytes"), "it reads its numbers"
    assert found == plain


def test_a_table_needs_what_is_learned_of_its_columns(tmp_path):
    frame = tables.table(200)
    settings = tables.SETTINGS
    tables.dataset(tmp_path / "train", settings, {"a": frame})
    found = read_traced_shapes("tabular", settings, tmp_path / "train", 16)
    workload = load_workload("tabular", settings, tmp_path / "train")
    load_batch(workload, tmp_path / "train", 1)
    assert found.parameters == sum(one.numel() for one in workload.model().parameters())
    assert found.matmul_flops > 0 == found.attention_flops


@pytest.mark.sweep
def test_no_weight_takes_memory():
    """405B parameters in float32 are 1.6 TB."""
    large = {"layers": 1, "heads": 128, "kv_heads": 8, "dim": 16384, "hidden_dim": 53248}
    found = read_traced_shapes(
        "language_model", large | {"context_length": 64, "vocabulary": 128256}
    )
    assert found.units[1].parameters == 3_187_703_808
