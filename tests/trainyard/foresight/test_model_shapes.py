from dataclasses import asdict

import pytest

from trainyard.common.errors import RecipeError, TrainingError
from trainyard.foresight import model_shapes
from trainyard.foresight.model_shapes import MODELS, get_model
from trainyard.foresight.setting import Setting

PUBLISHED = {"gpt-3-175b": 175e9, "llama-3-70b": 70.6e9, "llama-3-405b": 405e9}
LLAMA = {"gpu": "H100-80", "gated": True, "vocab": 128256}
LLAMA_2 = LLAMA | {"vocab": 32000}
GPT = {"gpu": "H100-80", "positions": "learned", "tied": True, "vocab": 50257, "sequence": 1024}


def model(layers: int, hidden: int, **more: int | bool) -> dict:
    return {"layers": layers, "hidden": hidden, **more}


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        (LLAMA | model(32, 4096, kv_heads=8, ffn=14336), 8_030_261_248),
        (LLAMA | model(126, 16384, kv_heads=8, ffn=53248), 405_853_388_800),
        (LLAMA | model(16, 2048, heads=32, kv_heads=8, ffn=8192, tied=True), 1_235_814_400),
        (LLAMA_2 | model(32, 4096), 6_738_415_616),
        (LLAMA_2 | model(80, 8192, kv_heads=8, ffn=28672), 68_976_648_192),
        (GPT | model(12, 768, heads=12), 124_439_808),
        (GPT | model(48, 1600, heads=25), 1_557_611_200),
    ],
    ids=["8B", "405B", "1B", "7B", "70B of 2", "GPT-2", "GPT-2 XL"],
)
def test_parameters_are_those_that_are_published(given: dict, parameters: int):
    assert model_shapes.derive_shapes(Setting.model_validate(given)).parameters == parameters


@pytest.mark.parametrize("name", MODELS)
def test_each_known_model_is_a_setting_of_its_parameters_and_has_a_source(name: str):
    found = get_model(name)
    parameters = model_shapes.derive_shapes(Setting(gpu="H100-80", **found.shape)).parameters
    assert parameters == pytest.approx(PUBLISHED.get(name, parameters), rel=0.01)
    assert parameters and "arXiv" in found.source
    with pytest.raises(RecipeError, match=r"lama-3-8b.*nearest valid name: llama-3-8b.*--shapes"):
        get_model("lama-3-8b")


@pytest.mark.parametrize(("hidden", "layers"), [(768, 12), (4096, 32)])
@pytest.mark.parametrize("sequence", [512, 65536])
def test_mpt_has_its_own_formula(hidden: int, layers: int, sequence: int):
    setting = Setting.model_validate(
        GPT | model(layers, hidden, vocab=50368) | {"sequence": sequence}
    )
    h, length = hidden, layers
    expected = 12 * length * h * h + 13 * length * h + 2 * h + (50368 + sequence) * h
    assert model_shapes.derive_shapes(setting).parameters == expected


@pytest.mark.parametrize(("hidden", "heads", "sequence"), [(6144, 64, 2048), (12288, 96, 2048)])
def test_a_gpt_block_keeps_what_korthikanti_counts(hidden: int, heads: int, sequence: int):
    """Table 2 of the paper, bytes for a token: 34h + 5as, and its other rows."""
    given = model(2, hidden, heads=heads, attention="full", dropout=0.1, sequence=sequence)
    given |= {"gpus": 8, "tensor": 8}
    kept = model_shapes.derive_shapes(Setting.model_validate(GPT | given)).units[1].kept
    scores = 5 * heads * sequence
    none, selective, full = kept["none"], kept["selective"], kept["full"]
    assert none.compute_rank_bytes(1, sequence_parallel=False) == 34 * hidden + scores
    assert (
        none.compute_rank_bytes(8, sequence_parallel=False)
        == 10 * hidden + (24 * hidden + scores) / 8
    )
    assert none.compute_rank_bytes(8, sequence_parallel=True) == (34 * hidden + scores) / 8
    assert selective.compute_rank_bytes(8, sequence_parallel=True) == 34 * hidden / 8
    assert full.compute_rank_bytes(1, sequence_parallel=False) == 2 * hidden


def test_torch_keeps_what_it_has_gathered_of_a_shared_sequence():
    """By 4 ranks: the output of both norms whole, and keys and values for every head."""
    given = LLAMA | model(2, 4096, kv_heads=8, ffn=14336) | {"gpus": 4, "tensor": 4}
    shared = {"sequence_parallel": True, "shard": "full"}
    kept = model_shapes.derive_shapes(Setting.model_validate(given | shared)).units[1].kept["none"]
    assert kept.gathered == 2 * 2 * 4096
    fused = shared | {"shard": "optimizer"}
    of = model_shapes.derive_shapes(Setting.model_validate(given | fused))
    megatron = of.units[1].kept["none"]
    assert megatron.gathered == 0
    repeated = 2 * 2 * (4096 - 1024)  # keys and values in 16 bits
    assert kept.split - megatron.split == repeated + 2 * 14336  # and SiLU's result
    policy = {"recompute": "selective"}
    selective = model_shapes.derive_shapes(Setting.model_validate(given | shared | policy)).units[1]
    assert selective.kept["selective"].gathered == 2 * 4096  # a rank's summand of what comes down


def test_work_is_that_of_the_weights_and_of_the_sequence():
    """PaLM's count (Chowdhery et al. 2022, appendix B): forward, 2N + 4Lhs."""
    of = model_shapes.derive_shapes(
        Setting.model_validate(LLAMA | model(32, 4096, kv_heads=8, ffn=14336))
    )
    norms = 65 * 4096
    assert of.matmul_flops == 2 * (8_030_261_248 - 128256 * 4096 - norms)
    assert of.attention_flops == 4 * 32 * 4096 * 2048


def test_adapters_alone_are_trained():
    given = LLAMA_2 | model(32, 4096, lora_rank=8)
    of = model_shapes.derive_shapes(Setting.model_validate(given))
    assert of.trained == 32 * 8 * 2 * 2 * 4096
    assert of.parameters == 6_738_415_616 + of.trained


def test_what_is_printed_is_read_and_what_is_no_model_is_refused_by_its_field():
    of = model_shapes.derive_shapes(Setting.model_validate(LLAMA | model(2, 512)))
    tree = asdict(of)
    assert model_shapes.parse_shapes(tree) == of
    tree["units"][1].pop("trained")
    with pytest.raises(TrainingError, match="units.1.trained"):
        model_shapes.parse_shapes(tree)
