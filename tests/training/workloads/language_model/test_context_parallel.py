"""Documents packed into one sample: nothing attends across them, and the loss shows it."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.training.trainings import write_dataset
from training.data.dataset import Dataset
from training.workloads import load_workload
from training.workloads.language_model.context_parallel import (
    Documents,
    assign_positions,
    compute_positions,
)

END = 256
CONTEXT = 48
SHAPE = {"context_length": CONTEXT, "layers": 2, "heads": 4, "kv_heads": 2, "dim": 32}
EXACT = {torch.float64: 1e-13, torch.float32: 1e-6}  # relative


def transformer(attend: str, dtype: torch.dtype, records: str = "documents"):
    """Return a workload and its model, whose weights are large enough for attention to matter."""
    workload = load_workload("language_model", SHAPE | {"attend": attend, "records": records})
    torch.manual_seed(0)
    model = workload.model().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return workload, model


def sample(documents: list[list[int]]) -> torch.Tensor:
    """Return one sample that begins with an end token, as if a document had ended before it."""
    tokens = [END, *(token for text in documents for token in (*text, END))][: CONTEXT + 1]
    return torch.tensor([tokens + [END] * (CONTEXT + 1 - len(tokens))])


def nats(workload, model, tokens: torch.Tensor) -> torch.Tensor:
    """Return −ln p of the tokens that count, (t,); 0 elsewhere."""
    batch = {"tokens": tokens}
    with torch.no_grad():
        logits = model(*workload.inputs(batch))
    return F.cross_entropy(logits[0], workload._select_targets(batch)[0], reduction="none")


texts = st.lists(
    st.lists(st.integers(0, 255), min_size=0, max_size=CONTEXT), min_size=1, max_size=8
)
"""Texts; empty ones make an end token follow an end token; some have the exact context length or
more."""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@given(documents=texts)
def test_a_packed_documents_loss_is_its_loss_alone(dtype, documents):
    workload, model = transformer("document", dtype)
    packed = nats(workload, model, sample(documents))
    start = 0
    for text in documents:
        stop = min(start + len(text) + 1, CONTEXT)
        together = packed[start:stop].sum()
        alone = nats(workload, model, sample([text]))[: stop - start].sum()
        assert math.isclose(together, alone, rel_tol=EXACT[dtype], abs_tol=EXACT[dtype])
        start = stop


def test_of_prompts_with_completions_the_next_record_begins_behind_the_end():
    tokens = torch.tensor([[7, 8, END, 9, END, END]])
    numbers = Documents(END, behind=True).number_documents(tokens)
    assert numbers.tolist() == [[0, 0, 0, 1, 1, 2]]
    assert compute_positions(numbers).tolist() == [[0, 1, 2, 0, 1, 0]]
    numbers = Documents(END, behind=False).number_documents(tokens)
    assert numbers.tolist() == [[0, 0, 1, 1, 2, 3]]
    assert compute_positions(numbers).tolist() == [[0, 1, 0, 1, 0, 0]]


@given(chunk=st.integers(1, 9), count=st.integers(1, 8))
def test_context_ranks_have_every_place_once_and_equally_much_to_attend_to(chunk, count):
    length = 2 * chunk * count
    parts = [assign_positions(length, index, count) for index in range(count)]
    assert sorted(torch.cat(parts).tolist()) == list(range(length))
    assert len({int(part.sum()) for part in parts}) == 1


@pytest.mark.parametrize("records", ["documents", "completions"])
def test_units_and_losses_of_parts_add_up(records):
    workload, model = transformer("window", torch.float64, records)
    batch = {"tokens": torch.cat([sample([[1, 2, 3]]), sample([[5] * 40, [6]])])}
    if records == "completions":
        batch["counted"] = (torch.arange(2 * CONTEXT).view(2, -1) % 5 == 0).to(torch.uint8)
    logits = model(*workload.inputs(batch)).detach()
    parts = [workload.part(batch, index, 3) for index in range(3)]
    assert sum(workload.units(part) for part in parts) == workload.units(batch)
    pieces = [logits[:, assign_positions(CONTEXT, index, 3)] for index in range(3)]
    costs = map(workload.loss, pieces, parts)
    assert math.isclose(sum(costs), workload.loss(logits, batch), rel_tol=1e-13)


def test_scores_and_answers_are_the_documents_losses_alone(tmp_path):
    """Evaluation and endpoint ask the model, and the model keeps the documents apart."""
    workload, model = transformer("document", torch.float32)
    texts = ["one", "", "and a longer one", "x"]
    packer = workload.packing.packer()
    packed = [packer.add(pa.record_batch({"text": pa.array(texts, pa.string())})), packer.flush()]
    tokens = np.concatenate([part["tokens"] for part in packed])
    write_dataset(tmp_path, {"tokens": tokens}, workload.packing.fields)
    (block,) = workload.scores(model, Dataset(tmp_path))
    first, *others = block["loss.sum"]
    with torch.inference_mode():
        [answer] = workload.answers(model, [{"text": "one"}])
    assert math.isclose(first, answer["nats"], rel_tol=1e-6)
    for text, score in zip(texts[2:], others, strict=True):
        alone = nats(workload, model, sample([[*text.encode()]]))
        assert math.isclose(score, alone[: len(text) + 1].sum(), rel_tol=1e-6)
