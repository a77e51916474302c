"""What the three loops train: a small Llama of bytes, made from a config, offline."""

from typing import TYPE_CHECKING

from transformers import LlamaConfig, LlamaForCausalLM

if TYPE_CHECKING:
    from torch import Tensor

END = 256  # the token after each document: the Shard step's byte tokenizer has 257
IGNORED = -100


def model(
    folder: str = "", layers: int = 2, dim: int = 128, heads: int = 4, dropout: float = 0.0
) -> LlamaForCausalLM:
    """The model in a folder, or one with fresh weights of torch's random state."""
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
    """Tokens of n samples, uint16 (n, width), to a causal model's inputs and labels, int64.

    An end after an end only fills a sample up: it is no target.
    """
    tokens = batch["tokens"].long()
    labels = tokens.clone()
    labels[:, 1:][(tokens[:, :-1] == END) & (tokens[:, 1:] == END)] = IGNORED
    return {"input_ids": tokens, "labels": labels}
