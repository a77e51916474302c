"""The layouts that could be, and the walk along the edge of those that fit."""

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.foresight.layouts import (
    Count,
    Machine,
    Space,
    iter_fitting_layouts,
    list_node_counts,
)
from trainyard.foresight.model_shapes import get_model
from trainyard.foresight.setting import Setting

P5 = Machine(gpu="H100-80", gpus=8, node_gbps=3200)
LLAMA = Setting(gpu="H100-80", **get_model("llama-3-70b").shape)
KEPT = {"none": 4.0, "selective": 2.0, "full": 1.0}
COPIES = {"none": 8.0, "optimizer": 4.0, "gradients": 2.0, "full": 1.0}


@dataclass
class Size:
    """Memory that grows with the micro-batch and the copies, and shrinks with recomputation."""

    need: float
    there: float

    @property
    def fits(self) -> Literal["yes", "no", "unsure"]:
        if abs(self.need - self.there) < 0.1 * self.there:
            return "unsure"
        return "yes" if self.need < self.there else "no"


def size(there: float):
    def remember(setting: Setting) -> Size:
        own = setting.micro_batch * KEPT[setting.recompute] / setting.context
        return Size((own + COPIES[setting.shard]) / setting.tensor / setting.pipeline, there)

    return remember


def list_fitting_settings(there: float, space: Space = Space(), nodes: int = 4, batch: int = 256):  # noqa: B008
    count = Count()
    found = list(iter_fitting_layouts(LLAMA, P5, nodes, batch, space, size(there), count))
    return [setting for setting, _ in found], count


def test_what_is_given_is_a_setting_that_holds_the_global_batch_or_none():
    found, _ = list_fitting_settings(2.0)
    assert found
    for setting in found:
        assert Setting(**setting.model_dump()) == setting
        assert setting.tokens == 256 * LLAMA.sequence
        assert setting.gpus == 32 and setting.node_gbps == 3200
    found, count = list_fitting_settings(
        100.0, Space(tensor=(1,), pipeline=(1,), context=(1,)), batch=24
    )
    assert not found and not count.layouts  # its ranks cannot share it


def test_ranks_share_heads_blocks_and_nodes_evenly():
    found, _ = list_fitting_settings(100.0)
    for setting in found:
        assert setting.gpus_per_node % setting.tensor == 0
        assert setting.kv_heads % setting.tensor == 0
        assert setting.layers % (setting.pipeline * setting.interleave) == 0
        assert setting.accumulation >= setting.pipeline
    assert {setting.pipeline for setting in found} == {1, 2, 4, 8, 16}
    assert {setting.context for setting in found} == {1}
    longer, _ = list_fitting_settings(100.0, Space(shortest_share=2048))
    assert {setting.context for setting in longer} == {1, 2, 4}
    large = Setting(gpu="H100-80", **get_model("llama-3-405b").shape)  # embedding and head count
    found = iter_fitting_layouts(large, P5, 16, 256, Space(pipeline=(16,)), size(100.0), Count())
    assert {setting.pipeline for setting, _ in found} == {16}


@given(there=st.floats(0.05, 20), tensor=st.sampled_from([1, 2, 8]))
def test_the_walk_finds_what_asking_about_each_would(there: float, tensor: int):
    space = Space(tensor=(tensor,), pipeline=(1, 4), interleave=(1, 2), context=(1,))
    found, count = list_fitting_settings(there, space)
    walked = {_key(setting) for setting in found}
    every, _ = list_fitting_settings(float("inf"), space)
    remember = size(there)
    surest: dict[tuple, str] = {}
    for setting in every:
        for recompute in space.recompute:
            one = setting.model_copy(update={"recompute": recompute})
            answer = remember(one).fits
            if answer != "no" and _key(one)[:-1] not in surest:
                assert _key(one) in walked
            if answer == "yes":
                surest.setdefault(_key(one)[:-1], recompute)
    assert len(walked) == len(found) == count.fit
    assert count.attempt_count <= count.layouts


def _key(one: Setting) -> tuple:
    degrees = (one.tensor, one.pipeline, one.interleave, one.context)
    return (*degrees, one.shard, one.shard_degree, one.micro_batch, one.recompute)


def test_what_the_engine_refuses_is_counted():
    def refuse(setting: Setting) -> str | None:
        return "no pipelines here" if setting.pipeline > 1 else None

    found, count = list_fitting_settings(100.0, Space(refuse=refuse))
    assert {setting.pipeline for setting in found} == {1}
    assert count.refusal == "no pipelines here" and count.refusal_count > 0


@pytest.mark.parametrize(("gpu", "asked", "had"), [
    ("V100-16", ("bf16",), {"fp16"}),
    ("A100-40", ("bf16", "fp8"), {"bf16"}),
    ("H100-80", ("bf16", "fp8"), {"bf16", "fp8"}),
])  # fmt: skip
def test_a_device_is_given_precisions_that_it_has(gpu: str, asked: tuple[str, ...], had: set[str]):
    machine = Machine(gpu=gpu, gpus=8, node_gbps=100)
    space = Space(precision=asked, tensor=(1,), pipeline=(1,))
    found = iter_fitting_layouts(LLAMA, machine, 1, 64, space, size(100.0), Count())
    assert {setting.precision for setting, _ in found} == had


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_quantized_weights_are_not_split_between_tensor_parallel_ranks(quantization: str):
    model = LLAMA.model_copy(update={"lora_rank": 8, "quantization": quantization})
    found = iter_fitting_layouts(model, P5, 1, 64, Space(), size(100.0), Count())
    split = {setting.tensor for setting, _ in found} - {1}
    assert bool(split) == (quantization == "none")


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (6, [1, 2, 3, 4, 6]), (7, [1, 2, 3, 4, 6, 7])]
)
def test_counts_of_nodes(most: int, counts: list[int]):
    assert list_node_counts(most) == counts
