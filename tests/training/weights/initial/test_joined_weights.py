"""A weight that is read or joined: each rank reads only its own rows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.training.weights.initial.test_build_model import drawn_part
from training.weights.initial.build_model import (
    JoinedValue,
    build_on_meta,
    find_initial_values,
    find_recorder,
    record_changes,
)
from training.weights.initial.initial_values import Part, list_values
from training.weights.initial.replay import WholeValue
from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.workload import join_qkv


@dataclass
class Counted:
    """A stored tensor that counts the elements requested from it."""

    tensor: Tensor
    read: int = 0

    def write(self, part: Part, into: Tensor) -> None:
        self.read += into.numel()
        into.copy_(self.tensor[part])


@cache
def qkv(
    groups: int, kinds: tuple[torch.dtype, ...], changed: Callable[[Tensor], Tensor] = lambda x: x
):
    """Return a matrix on meta made of queries, keys and values, and their sources."""
    config = LanguageModelConfig(layers=1, heads=4, kv_heads=groups, dim=16, context_length=8)
    sizes = [(n * config.head_width, config.dim) for n in (config.heads, groups, groups)]
    parts = [Counted(torch.randn(size).to(kind)) for size, kind in zip(sizes, kinds, strict=True)]
    rows = sum(size[0] for size in sizes)
    model = build_on_meta(lambda: nn.Linear(config.dim, rows, bias=False), 0)
    recorder = find_recorder(model)
    assert recorder is not None
    leaves = [recorder.create_leaf(one, one.tensor.shape, one.tensor.dtype) for one in parts]
    with record_changes(model):
        model.load_state_dict({"weight": changed(join_qkv(config, leaves))})
    whole = join_qkv(config, [one.tensor for one in parts])
    return find_initial_values(model)["weight"], parts, whole


@given(st.data(), st.sampled_from([1, 2]), st.sampled_from([torch.float32, torch.bfloat16]))
def test_a_part_is_the_same_numbers_as_in_the_whole(data, groups, kind):
    value, parts, whole = qkv(groups, (kind,) * 3)
    assert isinstance(value, JoinedValue)
    part = drawn_part(data, whole.shape)
    wanted = whole[part].float()
    into = torch.full_like(wanted, 9, memory_format=torch.contiguous_format)
    before = sum(one.read for one in parts)
    value.write(part, into)
    assert torch.equal(into, wanted)
    assert sum(one.read for one in parts) - before == wanted.numel()


def test_what_is_more_than_putting_together_is_made_whole():
    twice, _, whole = qkv(4, (torch.float32,) * 3, lambda x: 2 * x)
    assert isinstance(twice, WholeValue)
    into = torch.empty(48, 16)
    twice.write((slice(0, 48), slice(0, 16)), into)
    assert torch.equal(into, 2 * whole)
    mixed, _, _ = qkv(4, (torch.float32, torch.bfloat16, torch.float32))
    assert isinstance(mixed, WholeValue)


def test_of_a_file_a_rank_reads_some_rows_after_the_other(tmp_path, monkeypatch):
    tensors = {"wide": torch.randn(70, 30), "norm": torch.randn(70), "scale": torch.tensor(3.0)}
    save_file(tensors, tmp_path / "model.safetensors")
    monkeypatch.setattr("training.weights.initial.initial_values.AT_ONCE", 100)
    found = {one.name: one for one, _, _ in list_values(tmp_path / "model.safetensors")}
    for name, part in (("wide", (slice(5, 66), slice(3, 29))), ("norm", (slice(0, 70),))):
        into = torch.empty_like(tensors[name][part])
        found[name].write(part, into)
        assert torch.equal(into, tensors[name][part])
    found["scale"].write((), into := torch.zeros(()))
    assert into == 3


def test_a_weight_that_is_only_copied_is_what_was_stored():
    model = build_on_meta(lambda: nn.Linear(3, 5), 0)
    recorder, kept = find_recorder(model), Counted(torch.randn(5, 3).bfloat16())
    assert recorder is not None
    leaf = recorder.create_leaf(kept, kept.tensor.shape, kept.tensor.dtype)
    with record_changes(model):
        model.load_state_dict({"weight": leaf}, strict=False)
    assert find_initial_values(model)["weight"] is kept
    with record_changes(model):
        model.load_state_dict({"weight": leaf.view(3, 5).t()}, strict=False)
    value = find_initial_values(model)["weight"]
    assert value is not kept
    value.write((slice(0, 5), slice(0, 3)), into := torch.empty(5, 3))
    assert torch.equal(into, kept.tensor.view(3, 5).t().float())
