"""Llama and Qwen models created by transformers: ours computes the same, and exports them again.

transformers is the judge. Figures of 40 runs: logits differ by 3e-6 of the largest at most.
"""

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from training.layout import Layout
from training.workloads import load_workload
from training.workloads.language_model import config as hugging_face
from training.workloads.language_model.config import (
    LanguageModelConfig,
    explain_impossible_layout,
    explain_impossible_split,
)
from training.workloads.language_model.model import Transformer
from trainyard.common.errors import TrainingError

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 272,  # more rows than there are tokens
    "max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
CASES = {
    "llama": LlamaConfig(**SHAPE, rms_norm_eps=1e-5),
    "llama 3, tied": LlamaConfig(**SHAPE, rope_parameters=LLAMA3, tie_word_embeddings=True),
    "llama, biases": LlamaConfig(**SHAPE, attention_bias=True, head_dim=12),
    "llama, longer": LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "mistral": MistralConfig(**SHAPE, sliding_window=None),
    "qwen 2": Qwen2Config(**SHAPE, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen 3, tied": Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
}


@torch.inference_mode()
def assert_equal_logits(one, other) -> None:
    tokens = torch.randint(0, 257, (3, 50), generator=torch.Generator().manual_seed(1))
    first, second = (getattr(found, "logits", found) for found in (one(tokens), other(tokens)))
    assert float((first - second).abs().max() / second.abs().max()) < 2e-5


@pytest.mark.parametrize("case", CASES)
def test_their_weights_give_their_logits_here_and_are_exported_as_theirs(case, tmp_path):
    """All weights are drawn, even those that usually begin at 0 and 1."""
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(CASES[case]).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    described = json.loads(theirs.config.to_json_string(use_diff=False))
    workload = load_workload("language_model", hugging_face.derive_settings(described))
    ours = workload.model()
    ours.load_state_dict(workload.restore(theirs.state_dict()))
    assert_equal_logits(ours.eval(), theirs)
    angles = torch.atan2(ours.sin, ours.cos)[1]  # of position 1
    torch.testing.assert_close(angles, theirs.model.rotary_emb.inv_freq)

    found, config = workload.export(ours.state_dict())
    save_file({n: t.contiguous().clone() for n, t in found.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    again, told = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_equal_logits(again.eval(), theirs)
    there = theirs.state_dict()
    assert all(torch.equal(tensor, there[name]) for name, tensor in found.items())
    assert hugging_face.list_differences(workload.config, config) == []


@pytest.mark.parametrize(("change", "expected"), [
    ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"mlp_bias": True}, "mlp_bias is True"),
    ({"sliding_window": 4096}, "sliding_window is 4096"),
    ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
    ({"quantization_config": {"bits": 4}}, "quantization_config is"),
    ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
])  # fmt: skip
def test_what_our_decoder_is_not_is_refused_by_name(change, expected):
    described = CASES["llama"].to_dict() | change
    with pytest.raises(TrainingError, match=expected):
        hugging_face.derive_settings(
            {n: value for n, value in described.items() if value is not None}
        )


def test_each_difference_from_the_base_is_named():
    description = CASES["llama 3, tied"].to_dict()
    right = hugging_face.derive_settings(description)
    assert hugging_face.list_differences(LanguageModelConfig(**right), description) == []
    shorter = LanguageModelConfig(**right | {"context_length": 8})
    assert hugging_face.list_differences(shorter, description) == []
    wrong = LanguageModelConfig(
        **right | {"kv_heads": 4, "tie_embeddings": False, "context_length": 65}
    )
    assert hugging_face.list_differences(wrong, description) == [
        "workload.config.kv_heads is 4, the base has 2",
        "workload.config.tie_embeddings is False, the base has True",
        "workload.config.context_length is 65, the base supports 64 positions",
    ]


def test_a_vocabulary_too_small_for_the_tokenizer_is_refused():
    with pytest.raises(TrainingError, match="vocabulary: is 200, and the tokenizer has 257"):
        load_workload("language_model", {"vocabulary": 200}).model()


def test_what_cannot_be_split_is_refused_with_the_reason():
    config = LanguageModelConfig(heads=4, kv_heads=2)
    assert explain_impossible_split(config, 2, 2) is None
    assert explain_impossible_split(config, 4, 1).startswith("kv_heads 2 cannot be shared")
    layout = {"tensor_parallel": 3, "sequence_parallel": True}
    assert "256 / tensor_parallel 3 = 85.33 pos" in explain_impossible_layout(
        config, Layout(**layout)
    )
    assert (
        explain_impossible_layout(config, Layout(**layout | {"sequence_parallel": False})) is None
    )


def test_no_bias_is_decayed_and_fresh_ones_are_0():
    config = LanguageModelConfig(attention_bias="all", layers=1)
    biases = {n: p for n, p in Transformer(config, 257).named_parameters() if n.endswith("bias")}
    assert len(biases) == 2 and not any(bias.any() for bias in biases.values())
