from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.foresight import memory, model_shapes
from trainyard.foresight.memory import Stage, compute_model_state_bytes, list_stages
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import ActivationBytes, Shapes, Unit

GIB = 2**30
GPT: dict[str, Any] = {
    **{"gpu": "A100-80", "positions": "learned", "dropout": 0.1, "attention": "full"},
    **{"precision": "fp16", "vocab": 51200, "sequence": 2048, "tensor": 8, "accumulation": 64},
}
LLAMA: dict[str, Any] = {"gpu": "H100-80", "gated": True, "vocab": 128256, "kv_heads": 8}
KORTHIKANTI = {
    "22B": {"layers": 48, "hidden": 6144, "heads": 64, "micro_batch": 4},
    "175B": {"layers": 96, "hidden": 12288, "heads": 96, "pipeline": 8, "interleave": 3},
    "530B": {"layers": 105, "hidden": 20480, "heads": 128, "pipeline": 35, "interleave": 3},
    "1T": {"layers": 128, "hidden": 25600, "heads": 160, "pipeline": 64},
}


def gpt(size: str, **more: Any) -> Setting:
    given = GPT | KORTHIKANTI[size] | more
    return Setting.model_validate(given | {"gpus": 8 * given.get("pipeline", 1)})


@pytest.mark.parametrize(
    ("size", "selective", "gib"),
    [
        ("22B", False, 59.25),
        ("22B", True, 9.5625),
        ("175B", True, 12.3515625),
        ("530B", False, 114.0234375),
        ("1T", True, 26.5625),
    ],
)
def test_the_first_stage_keeps_what_figure_1_of_korthikanti_shows(
    size: str, selective: bool, gib: float
):
    """Blocks alone, as the figure has it."""
    setting = gpt(size, sequence_parallel=selective, recompute="selective" if selective else "none")
    first = list_stages(setting, model_shapes.derive_shapes(setting))[0]
    tokens = setting.micro_batch * setting.sequence
    ((block, count),) = [pair for pair in first.units if pair[0].name == "block"]
    kept = block.kept[setting.recompute].compute_rank_bytes(8, sequence_parallel=selective)
    assert kept * count * first.flight * tokens / GIB == gib


@pytest.mark.parametrize(("size", "gib"), [("22B", 45.5625), ("1T", 32.958984375)])
def test_states_are_those_of_figure_1(size: str, gib: float):
    """18 bytes of each weight of the blocks' matrices; embeddings and biases are not in it."""
    setting = gpt(size)
    block = model_shapes.derive_shapes(setting).units[1]
    matrices = bare(int(block.matmul_flops) // 2, 1)
    stage = Stage(0, ((matrices, block.count / setting.pipeline),), None, 1, 0)
    found = compute_model_state_bytes(setting, stage)
    assert (found.parameters + found.gradients + found.optimizer) / GIB == gib


def bare(parameters: int, flops: int) -> Unit:
    nothing = ("replicated", "attention_flops", "elementwise_bytes", "output_bytes")
    kept = dict.fromkeys(("none", "selective", "full"), ActivationBytes(0, 0))
    given = {"parameters": parameters, "trained": parameters, "matmul_flops": flops, "kept": kept}
    return Unit(name="layer", **given, **dict.fromkeys(nothing, 0))


T5_3B = Shapes(units=(bare(32_000_000, 2), bare(2_819_000_000, 0)), sequence=1, logits=0)


@pytest.mark.parametrize(
    ("shard", "offload", "beside", "gib"),
    [
        ("full", "all", 0, 0.12),
        ("full", "optimizer", 0, 0.79),
        ("full", "none", 2, 6.10),
        ("gradients", "none", 0, 15.93),  # whole ones: 4 bytes a parameter, and 16 shared
        ("gradients", "optimizer", 0, 5.31),
    ],
)
def test_shared_states_are_those_of_deepspeeds_estimate(
    shard: str, offload: str, beside: int, gib: float
):
    """t5-3b on 8 GPUs, the docs' page on memory, largest layer 32M. ``beside``: DeepSpeed
    has 16-bit weights next to the float32 ones, where FSDP has none.
    """
    given = {"layers": 1, "hidden": 1, "gpus": 8, "shard": shard, "offload": offload}
    given |= {"gpu": "A100-80", "deepspeed": shard == "gradients"}
    setting = Setting.model_validate(given)
    states = compute_model_state_bytes(setting, list_stages(setting, T5_3B)[0])
    total = states.parameters + states.gradients + states.optimizer
    total += states.gathered_bytes.blocks if shard == "full" else 0
    total += beside * T5_3B.parameters / 8
    assert total / GIB == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize(
    ("shard", "expected"),
    [("none", 16), ("optimizer", 4 + 12 / 8), ("gradients", 2 + 14 / 8), ("full", 16 / 8)],
)
def test_states_are_those_of_zero(shard: str, expected: float):
    """Rajbhandari et al. 2020, figure 1: 16-bit gradients, Adam in float32."""
    given = {"gpus": 8, "layers": 4, "hidden": 256, "shard": shard, "gradient_dtype": "fp16"}
    setting = Setting.model_validate(LLAMA | {"kv_heads": 0} | given)
    model = model_shapes.derive_shapes(setting)
    states = compute_model_state_bytes(setting, list_stages(setting, model)[0])
    total = states.parameters + states.gradients + states.optimizer
    assert total / model.parameters == pytest.approx(expected)


@pytest.mark.parametrize("accumulation", [1, 64])
@pytest.mark.parametrize("interleave", [1, 2])
def test_stages_share_all_blocks_and_begin_no_more_than_there_is(
    accumulation: int, interleave: int
):
    given = {"gpus": 4, "pipeline": 4, "layers": 30, "hidden": 1024, "kv_heads": 0}
    given |= {"accumulation": accumulation, "interleave": interleave}
    setting = Setting.model_validate(LLAMA | given)
    first, second, last = list_stages(setting, model_shapes.derive_shapes(setting))
    count = [dict((unit.name, n) for unit, n in stage.units) for stage in (first, second, last)]
    assert count[0]["block"] + 2 * count[1]["block"] + count[2]["block"] == 30
    assert first.flight >= second.flight >= last.flight >= min(1, accumulation)
    assert first.flight <= accumulation


SETTINGS = st.fixed_dictionaries(
    {
        "gpu": st.just("H100-80"),
        "gpus": st.sampled_from([8, 64]),
        "layers": st.sampled_from([8, 32]),
        "hidden": st.sampled_from([1024, 8192]),
        **dict.fromkeys(("gated", "tied", "compile"), st.booleans()),
        "micro_batch": st.sampled_from([1, 8]),
        "accumulation": st.sampled_from([1, 16]),
        "tensor": st.sampled_from([1, 4]),
        "pipeline": st.sampled_from([1, 2]),
        "shard": st.sampled_from(["none", "optimizer", "gradients", "full"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "offload": st.sampled_from(["none", "optimizer", "all"]),
        "lora_rank": st.sampled_from([0, 16]),
    }
)


@given(SETTINGS)
def test_categories_add_up_and_no_less_work_needs_more(given: dict[str, Any]):
    setting = Setting.model_validate(given)
    found = memory.predict_memory(setting)
    assert sum(one.p50 for one in found.categories.values()) == pytest.approx(found.peak.p50)
    assert 0 < found.peak.p10 <= found.peak.p50 <= found.peak.p90
    more = setting.model_copy(update={"micro_batch": setting.micro_batch * 2})
    assert memory.predict_memory(more).peak.p50 >= found.peak.p50
    full = setting.model_copy(update={"recompute": "full"})
    if setting.recompute == "selective":
        assert memory.predict_memory(full).peak.p50 <= found.peak.p50 * 1.001


def test_what_lies_in_the_hosts_memory_is_not_in_the_gpus():
    for layers, fits in ((2, "yes"), (80, "no")):  # far from the edge
        wide = Setting.model_validate(LLAMA | {"layers": layers, "hidden": 8192, "ffn": 28672})
        assert memory.predict_memory(wide).fits == fits
    given = LLAMA | {"layers": 32, "hidden": 4096, "gpus": 8, "shard": "full", "accumulation": 2}
    here = memory.predict_memory(Setting.model_validate(given))
    away = memory.predict_memory(Setting.model_validate(given | {"offload": "all"}))
    stays = [away.categories[name].p50 for name in ("parameters", "gradients", "optimizer")]
    assert stays == [0, 0, 0]
    assert away.peak.p50 < here.peak.p50


@pytest.mark.parametrize("where", [{"offload": "optimizer"}, {"optimizer_in_backward": True}])
def test_gradients_that_do_not_stay_are_there_by_the_unit(where: dict[str, Any]):
    """Llama 3.1's 8B on one device: the head's gradient, of 0.98 GiB in 16 bits, made and added."""
    given = LLAMA | {"layers": 32, "hidden": 4096, "ffn": 14336, "master": False}
    given |= {"optimizer": "sgd", "recompute": "full", "sequence": 64}
    setting = Setting.model_validate(given)
    stay = memory.predict_memory(setting)
    leave = memory.predict_memory(setting.model_copy(update=where))
    assert stay.categories["gradients"].p50 * GIB == 2 * 8_030_261_248
    assert leave.categories["gradients"].p50 == 0
    assert leave.categories["gathered"].p50 == pytest.approx(2 * 0.98, abs=0.01)
