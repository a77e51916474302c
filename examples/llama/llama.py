"""The model of the three training loops: a small Llama over bytes, from a config, offline."""

from typing import TYPE_CHECKING

from transformers import LlamaConfig, LlamaForCausalLM

if TYPE_CHECKING:
    from torch import Tensor

END = 256  # the token after each document: the Shard step's byte tokenizer has 257
IGNORED = -100


def model(
    folder: str = "", layers: int = 2, dim: int = 128, heads: int = 4, dropout: float = 0.0
) -> LlamaForCausalLM:
    """Load the model from ``folder``; if that is empty, create one with random weights."""
    if folder:
        return LlamaForCausalLM.from_pretrained(folder)
    config = LlamaConfig(
        vocab_size=END + 1,
        hidden_size=dim,
        intermediate_size=4 * dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        attention_dropout=dropout,
        tie_word_embeddings=True,
        bos_token_id=END,
        eos_token_id=END,
    )
    return LlamaForCausalLM(config)


def inputs(batch: dict[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Return a causal model's inputs and labels, int64, from n samples' tokens, uint16 (n, width).

    An end token after an end token is padding, so it is not a target.
    """
    tokens = batch["tokens"].long()
    labels = tokens.clone()
    labels[:, 1:][(tokens[:, :-1] == END) & (tokens[:, 1:] == END)] = IGNORED
    return {"input_ids": tokens, "labels": labels}
