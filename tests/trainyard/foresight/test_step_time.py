"""Times of steps: what must hold of any setting, and what published figures say."""

import pytest

from trainyard.foresight import step_time
from trainyard.foresight.setting import Setting

GPT = {"gpu": "A100-80", "layers": 24, "hidden": 2048, "heads": 16, "vocab": 50368}


def step(**fields) -> step_time.Time:
    return step_time.predict_step_time(Setting(**{**GPT, **fields}))


def test_parts_make_up_the_step_and_rate_and_step_are_the_same_figure():
    found = step(gpus=16, shard="full", micro_batch=8, accumulation=2)
    assert sum(found.parts.values()) == pytest.approx(found.step_seconds.p50)
    assert found.step_seconds.p10 < found.step_seconds.p50 < found.step_seconds.p90
    assert found.tokens_per_second_per_gpu.p50 * found.step_seconds.p50 == 8 * 2 * 2048


@pytest.mark.parametrize(
    "more", [{"accumulation": 2}, {"recompute": "full"}, {"sequence": 4096}, {"layers": 48}]
)
def test_more_work_takes_longer(more):
    common = {"gpus": 8, "shard": "full", "micro_batch": 8}
    assert step(**{**common, **more}).step_seconds.p50 > step(**common).step_seconds.p50


def test_tensor_parallelism_over_more_than_a_node_collapses():
    inside = step(gpus=16, tensor=8, micro_batch=8).step_seconds.p50
    outside = step(gpus=16, tensor=16, micro_batch=16).step_seconds.p50
    assert outside > 2 * inside


def test_more_micro_batches_and_interleaved_stages_shrink_the_bubble():
    few, many = (step(gpus=8, pipeline=8, accumulation=m) for m in (8, 64))
    assert many.tokens_per_second_per_gpu.p50 > 1.3 * few.tokens_per_second_per_gpu.p50
    plain, shrunk = (step(gpus=4, pipeline=4, accumulation=4, interleave=v) for v in (1, 3))
    assert shrunk.step_seconds.p50 < plain.step_seconds.p50


@pytest.mark.parametrize(
    ("fields", "minutes"),
    [
        ({"layers": 16, "hidden": 4096, "ffn": 16384, "vocab": 50688, "sequence": 1034}, 0.58),
        ({"layers": 40, "hidden": 5120, "ffn": 13824, "vocab": 32000, "gated": True}, 3.19),
    ],
)
def test_nf4_costs_about_what_litgpt_measured(fields: dict, minutes: float):
    """What nf4 adds to 1,000 iterations of LoRA on an A100 (litgpt's resource tables)."""
    lora = {"gpu": "A100-40", "sequence": 1304, "master": False, "lora_rank": 8, **fields}
    plain, packed = (
        step_time.predict_step_time(Setting(**lora, quantization=one)).step_seconds.p50
        for one in ("none", "nf4")
    )
    assert packed - plain == pytest.approx(minutes * 60 / 1000, rel=0.3)


# what a step's work is counted as: held to the engine's own counts, and to first principles

LAYERS, WIDTH, FFN, VOCAB, RANKS = 4, 1024, 4096, 8192, 8
LLAMA = {
    **{"gpu": "H100-80", "gpus": RANKS, "layers": LAYERS, "hidden": WIDTH, "heads": 8},
    **{"ffn": FFN, "vocab": VOCAB, "sequence": 1024, "gated": True, "shard": "full"},
}


def count_sent_bytes(cast: int) -> float:
    """Bytes that leave a rank in a step; matrices alone, of which ``cast`` are gathered in 8 bits.

    Rajbhandari et al. 2020 (ZeRO), section 7: two gathers and a reduce-scatter, all in 16 bits.
    """
    matrices = [WIDTH * WIDTH] * 4 + [FFN * WIDTH] * 3
    gathered = sum(matrices[:cast]) + 2 * sum(matrices[cast:])
    block = 2 * gathered + 2 * sum(matrices)
    return (LAYERS * block + 3 * 2 * 2 * VOCAB * WIDTH) * (RANKS - 1) / RANKS


def test_weights_gathered_in_float8_are_as_many_bytes_as_the_engine_counts():
    wide, narrow = (
        step_time.compute_work(Setting(**LLAMA, precision="fp8", float8_gather=asked)).exchange
        for asked in (False, True)
    )
    assert narrow / wide == pytest.approx(count_sent_bytes(7) / count_sent_bytes(0), rel=2e-3)
    plain, asked = (
        step_time.compute_work(Setting(**LLAMA, float8_gather=one)) for one in (False, True)
    )
    assert plain == asked  # in 16 bits


def test_mfu_does_not_count_the_gradients_of_frozen_weights():
    every = step_time.compute_work(Setting(**LLAMA)).flops
    adapters = step_time.compute_work(Setting(**LLAMA, lora_rank=8)).flops
    matrices = LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * FFN) + WIDTH * VOCAB
    assert every - adapters == pytest.approx(2 * matrices, rel=0.02)
