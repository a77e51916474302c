"""What a step's work is counted as: held to the engine's own counts, and to first principles."""

import pytest

from trainyard.foresight import step_time
from trainyard.foresight.setting import Setting

LAYERS, WIDTH, FFN, VOCAB, RANKS = 4, 1024, 4096, 8192, 8
LLAMA = {
    **{"gpu": "H100-80", "gpus": RANKS, "layers": LAYERS, "hidden": WIDTH, "heads": 8},
    **{"ffn": FFN, "vocab": VOCAB, "sequence": 1024, "gated": True, "shard": "full"},
}


def sent(cast: int) -> float:
    """Bytes that leave a rank in a step; matrices alone, of which ``cast`` are gathered in 8 bits.

    Rajbhandari et al. 2020 (ZeRO), section 7: two gathers and a reduce-scatter, all in 16 bits.
    """
    matrices = [WIDTH * WIDTH] * 4 + [FFN * WIDTH] * 3
    gathered = sum(matrices[:cast]) + 2 * sum(matrices[cast:])
    block = 2 * gathered + 2 * sum(matrices)
    return (LAYERS * block + 3 * 2 * 2 * VOCAB * WIDTH) * (RANKS - 1) / RANKS


def test_weights_gathered_in_float8_are_as_many_bytes_as_the_engine_counts():
    wide, narrow = (
        step_time.from_setting(Setting(**LLAMA, precision="fp8", float8_gather=asked)).exchange
        for asked in (False, True)
    )
    assert narrow / wide == pytest.approx(sent(7) / sent(0), rel=2e-3)


def test_float8_gathers_change_nothing_in_16_bits():
    plain, asked = (
        step_time.from_setting(Setting(**LLAMA, float8_gather=one)) for one in (False, True)
    )
    assert plain == asked


def test_mfu_does_not_count_the_gradients_of_frozen_weights():
    every = step_time.from_setting(Setting(**LLAMA)).flops
    adapters = step_time.from_setting(Setting(**LLAMA, lora_rank=8)).flops
    matrices = LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * FFN) + WIDTH * VOCAB
    assert every - adapters == pytest.approx(2 * matrices, rel=0.02)
