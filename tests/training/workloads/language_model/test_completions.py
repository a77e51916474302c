"""Prompts with completions: one sample each, and only the completion has a loss."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.trainings import compute_metrics, loss_of, write_dataset
from training.data.dataset import Dataset
from training.tools.contract_tests.scoring_rules import join_blocks
from training.workloads import load_workload

SMALL = {"records": "completions", "context_length": 12, "layers": 1, "heads": 2, "dim": 16}
END = 256


def records(pairs: list[tuple[str, str]]) -> pa.RecordBatch:
    schema = pa.schema({"prompt": pa.string(), "completion": pa.string()})
    return pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, p, strict=True)) for p in pairs], schema
    )


def pack_pairs(workload, pairs: list[tuple[str, str]]) -> dict[str, np.ndarray]:
    packer = workload.packing.packer()
    parts = packer.add(records(pairs)), packer.flush()
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def tensors(workload, pairs: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in pack_pairs(workload, pairs).items()}


def load_seeded_model(config: dict) -> tuple:
    """Return a workload and its model, in evaluation mode."""
    torch.manual_seed(0)
    workload = load_workload("language_model", config)
    return workload, workload.model().eval()


def dataset(folder, workload, pairs) -> Dataset:
    packing = workload.packing
    samples = pack_pairs(workload, pairs)
    write_dataset(folder, samples, packing.fields, shard_bytes=200, workload=packing.info)
    return Dataset(folder)


TEXTS = st.text("abcö", max_size=20)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_a_sample_is_the_end_of_its_prompt_and_the_completion_which_alone_counts(pairs):
    workload = load_workload("language_model", SMALL)
    samples = pack_pairs(workload, pairs)
    found = samples["tokens"].tolist(), samples["counted"]
    for (prompt, said), row, counted in zip(pairs, *found, strict=True):
        before, after = list(prompt.encode()), [*said.encode(), END]
        kept = before[-max(1, 13 - len(after)) :]
        expected = [*kept, *after][:13]
        assert row == expected + [END] * (13 - len(expected))
        targets = [row[1:][place] for place in np.flatnonzero(counted)]
        assert targets == (expected[len(kept) :] if kept else expected[1:])


def test_the_loss_is_of_the_completion_alone():
    workload, model = load_seeded_model(SMALL)
    batch = tensors(workload, [("ab", "cd")])
    total, count = loss_of(workload, model, batch)
    log_p = torch.log_softmax(model(batch["tokens"][:, :-1].long()), -1)[0]
    assert count == 3
    wanted = zip((1, 2, 3), (*b"cd", END), strict=True)
    assert total.item() == pytest.approx(-sum(log_p[at, token].item() for at, token in wanted))


def test_the_scores_of_examples_add_up_to_the_loss_and_equal_ones_have_one_name(tmp_path):
    workload, model = load_seeded_model(SMALL)
    pairs = [("ab", "cd"), ("x", "yz"), ("ab", "cd"), ("", "")]
    data = dataset(tmp_path, workload, pairs)
    found = compute_metrics(workload, model, data)
    total, count = loss_of(workload, model, tensors(workload, pairs))
    assert found["loss"]["value"] == pytest.approx(total.item() / count.item(), rel=1e-5)
    names = join_blocks(list(workload.examples(data)))["example"].tolist()
    assert len(names) == 3 and names[0] == names[2] != names[1]
    assert join_blocks(list(workload.scores(model, data)))["bits_per_byte.weight"].sum() == 6
    assert workload.baselines(data, data, 10**6)["bigram"]["loss"] > 0


TOGETHER = SMALL | {"attend": "document"}


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.integers(1, 8))
def test_examples_that_share_samples_are_those_that_have_one_each(pairs, cut):
    """Samples hold them in order, as many as fit, whatever batches they come in."""
    each = pack_pairs(load_workload("language_model", SMALL), pairs)
    workload = load_workload("language_model", TOGETHER)
    together, wide = pack_pairs(workload, pairs), workload.packing.width
    packer = workload.packing.packer()
    parts = [packer.add(records(part)) for part in (pairs[:cut], pairs[cut:])] + [packer.flush()]
    for name, whole in together.items():
        assert np.array_equal(np.concatenate([part[name] for part in parts]), whole)
    predicted = [s["tokens"][:, 1:][s["counted"] > 0].tolist() for s in (each, together)]
    assert predicted[0] == predicted[1]
    ends = [np.flatnonzero(row == END) for row in each["tokens"]]
    lengths = [int(found[0]) + 1 if len(found) else wide for found in ends]
    used, samples = wide, 0
    for length in lengths:
        samples, used = (samples, used + length) if used + length <= wide else (samples + 1, length)
    assert len(together["tokens"]) == samples


def test_the_examples_of_a_sample_cost_what_they_cost_alone_and_have_the_same_names(tmp_path):
    pairs = [("ab", "cd"), ("x", "yz"), ("", "q"), ("ab", "cd"), ("a prompt", "and long"), ("", "")]
    found = []
    for config in (SMALL, TOGETHER):
        workload, model = load_seeded_model(config)
        with torch.no_grad():
            model.embedding.weight.mul_(20)
        data = dataset(tmp_path / config.get("attend", "each"), workload, pairs)
        columns = join_blocks(list(workload.scores(model, data)))
        loss, units = loss_of(workload, model, tensors(workload, pairs))
        assert columns["loss.sum"].sum() == pytest.approx(loss.item(), rel=1e-5)
        assert columns["loss.weight"].sum() == units
        found.append((columns["example"].tolist(), columns["loss.sum"], len(data)))
    (names, costs, samples), (others, together, fewer) = found
    assert names == others
    assert together == pytest.approx(costs, rel=1e-5)
    assert fewer < samples == len(pairs)


def test_a_request_is_a_prompt_with_its_completion(tmp_path):
    workload, model = load_seeded_model(SMALL)
    with torch.inference_mode():
        [answer] = workload.answers(model, [{"prompt": "ab", "completion": "cd"}])
    found = compute_metrics(workload, model, dataset(tmp_path, workload, [("ab", "cd")]))
    assert answer["bits_per_byte"] == pytest.approx(found["bits_per_byte"]["value"])
    assert (answer["tokens"], answer["bytes"]) == (3, 2)
    assert json.dumps(workload.packing.info)
    assert workload.packing.info["records"] == "completions"
