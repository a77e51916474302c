"""The language model as a workload: model, loss, evaluation."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.dataset import Dataset, Share
from training.data.manifest import Samples
from training.scores import Block, Metrics
from training.workloads import Column
from training.workloads.language_model.completions import COUNTED_FIELD, Tokenizer
from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.context_parallel import Documents, assign_positions
from training.workloads.language_model.model import Transformer
from training.workloads.language_model.packing import Packing
from training.workloads.language_model.scores import compute_metrics, find_padding, score_documents
from trainyard.common.errors import DataError, TrainingError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

EVALUATION_BATCH = 16  # samples per forward pass
IGNORED_TARGET = -100  # marks a target without a loss (torch's own default)


class Workload:
    """See ``training.workloads.Workload``; the unit is the token."""

    loss_parallel = True
    follows_weights = True

    def __init__(self, packing: Packing) -> None:
        self.packing, self.config, self.tokenizer = packing, packing.config, packing.tokenizer
        self.documents = Documents.from_config(self.config, self.tokenizer.end)

    def fit(self, train: Dataset) -> None:
        """Do nothing: the vocabulary is the tokenizer's."""

    def files(self) -> Mapping[str, bytes]:
        """Return tokenizer.json, if there is one."""
        return self.packing.files()

    def model(self) -> nn.Module:
        return Transformer(self.config, self._count_embedding_rows(), self.documents)

    def _count_embedding_rows(self) -> int:
        """Return the number of the embedding's rows: the tokenizer's tokens, or more if set."""
        size, vocabulary = self.tokenizer.size, self.config.vocabulary
        if vocabulary is not None and vocabulary < size:
            raise TrainingError(
                f"workload_config.vocabulary: is {vocabulary}, and the tokenizer has {size} "
                "tokens; raise it, or use the tokenizer that belongs to the model"
            )
        return vocabulary or size

    def units(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of predicted tokens, without padding and prompts."""
        return (self._select_targets(batch) != IGNORED_TARGET).sum()

    def _select_targets(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the tokens to predict, (n, t), with IGNORED_TARGET for those without a loss."""
        if "targets" in batch:  # the part of a context-parallel rank
            return batch["targets"]
        if COUNTED_FIELD in batch:
            target_mask = batch[COUNTED_FIELD].bool()
        else:
            target_mask = ~find_padding(batch["tokens"].long(), self.tokenizer.end)
        return batch["tokens"][:, 1:].long().where(target_mask, IGNORED_TARGET)

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return (batch["inputs"] if "inputs" in batch else batch["tokens"][:, :-1].long(),)

    def model_kwargs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the number of each token's document if attention needs it."""
        if self.documents is None:
            return {}
        if "documents" in batch:
            return {"documents": batch["documents"]}
        return {"documents": self.documents.number_documents(batch["tokens"][:, :-1].long())}

    def part(self, batch: Mapping[str, Tensor], index: int, count: int) -> dict[str, Tensor]:
        """Return a context-parallel rank's inputs and targets, and the whole samples' documents."""
        inputs, targets = batch["tokens"][:, :-1].long(), self._select_targets(batch)
        own_places = assign_positions(inputs.shape[1], index, count, inputs.device)
        return {
            "inputs": inputs[:, own_places],
            "targets": targets[:, own_places],
            **self.model_kwargs(batch),
        }

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the cross-entropy in nats, summed over the tokens."""
        targets = self._select_targets(batch).flatten()
        flat = logits.flatten(0, 1)
        return F.cross_entropy(flat, targets, reduction="sum", ignore_index=IGNORED_TARGET)

    def flops(self, model: nn.Module) -> float:
        """Return the floating-point operations per token, forward and backward.

        They are 6 per weight, plus 12 × layers × heads × head width × t for attention (Chowdhery et
        al. 2022, PaLM, appendix B). A tied embedding counts once, for the logits. An untied one
        does not count, because it is only looked up.
        """
        config = self.config
        # The gradient of a frozen weight is not computed: four operations instead of six.
        costs = [p.numel() * (6 if p.requires_grad else 4) for p in model.parameters()]
        if not config.tie_embeddings and isinstance(model, Transformer):
            embedding = model.embedding.weight
            costs.append(-embedding.numel() * (6 if embedding.requires_grad else 4))
        attention_size = config.layers * config.heads * config.head_width * config.context_length
        return sum(costs) + 12 * attention_size

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the blocks of our own model. A workload with another model may override this."""
        return list(model.blocks.values()) if isinstance(model, Transformer) else []

    def embeddings(self, model: nn.Module) -> Sequence[nn.Module]:
        if self.config.tie_embeddings or not isinstance(model, Transformer) or not model.first:
            return []
        return [model.embedding]

    def tensor_parallel(self, model: nn.Module, mesh: "DeviceMesh") -> None:
        from training.workloads.language_model import parallel  # here, because it takes 0.7 s

        parallel.apply_tensor_parallel(self._require_transformer(model, "tensor_parallel"), mesh)

    def sequence_parallel(self, model: nn.Module, mesh: "DeviceMesh") -> None:
        from training.workloads.language_model import parallel

        parallel.apply_sequence_parallel(
            self._require_transformer(model, "sequence_parallel"), mesh
        )

    def context_parallel(self, model: nn.Module, mesh: "DeviceMesh") -> Tensor:
        from training.workloads.language_model import parallel

        return parallel.apply_context_parallel(
            self._require_transformer(model, "context_parallel"), mesh, self.config
        )

    def stage(self, model: nn.Module, index: int, count: int) -> nn.Module:
        from training.workloads.language_model import parallel

        return parallel.keep_stage(
            self._require_transformer(model, "stage", "pipeline_parallel"), index, count
        )

    def _require_transformer(self, model: nn.Module, method: str, setting: str = "") -> Transformer:
        """Return the model if it is our own Transformer, the only one that is split here.

        Raises:
            TrainingError: ``model()`` returns another one; the message has the method to override.
        """
        if isinstance(model, Transformer):
            return model
        raise TrainingError(
            f"{type(self).__module__}: model() returns a {type(model).__name__}, and the language "
            f"model's {method}() splits only its own Transformer: override {method}() in the "
            f"workload, or leave {setting or method} out of the recipe"
        )

    def export(self, weights: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Return the weights in the format of Hugging Face's Llama, Qwen2 or Qwen3."""
        description = build_hugging_face_config(
            self.config, self._count_embedding_rows(), self.tokenizer.end
        )
        return export_names(self.config, weights), description

    def export_parts(self, names: Sequence[str]) -> Iterable[Sequence[str]]:
        """Return each weight as its own part, because queries, keys and values are one weight."""
        return [[name] for name in names]

    def export_adapters(self, adapters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return export_adapters(self.config, adapters)

    def restore(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return restore_names(self.config, weights)

    def scores(
        self,
        model: nn.Module,
        test: Dataset,
        slices: Sequence[str] = (),
        share: Share | None = None,
    ) -> Iterator[Block]:
        """Yield a row per document; the only slice is ``source``."""
        device = next(model.parameters()).device

        @torch.inference_mode()
        def predict(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return −ln p of each target, and whether it was the most likely token."""
            batch = torch.from_numpy(samples).to(device).long()
            targets = batch[:, 1:]
            logits = model(batch[:, :-1]).float()
            nats, hits = compute_token_costs(logits, targets), logits.argmax(-1) == targets
            return nats.cpu().numpy(), hits.cpu().numpy()

        return score_documents(test, self.tokenizer, predict, EVALUATION_BATCH, slices, share)

    def metrics(self, blocks: Iterable[Block]) -> Metrics:
        """Return bits per byte, loss, next-token accuracy and perplexity."""
        return compute_metrics(blocks)

    def examples(self, dataset: Dataset) -> Iterator[Block]:
        """Yield a hash of each document; each document is its own group."""
        return self.packing.examples(dataset)

    def baselines(self, train: Dataset, test: Dataset, limit: int) -> dict[str, dict[str, float]]:
        """Return the metrics of a unigram and a bigram model, on the same tokens and targets."""
        return measure_baselines(train, test, self.tokenizer, limit)

    @property
    def request_columns(self) -> Mapping[str, Column]:
        """Return the columns of a record."""
        return self.packing.columns

    def request(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        return record

    def answers(
        self, model: nn.Module, requests: Sequence[Mapping[str, Any]]
    ) -> Sequence[dict[str, float]]:
        """Return the loss of predicting each request's text, as ``answer_requests`` does."""
        return answer_requests(self.packing, model, requests)


# Baselines that a model must beat: frequencies of tokens, and of pairs of tokens.

CONCENTRATIONS = (1.0, 10.0, 100.0, 1000.0)
SCORED_SAMPLES = 1024  # samples per read


class Bigram:
    """Unigram and bigram probabilities from counts.

    unigram: p(b) = (c(b) + 1) / (N + V), Laplace's rule. bigram: p(b | a) = (c(ab) + k p(b)) /
    (c(a) + k), the mean under a Dirichlet prior around the unigram (MacKay & Peto 1995). k is
    the value in CONCENTRATIONS that predicts the last tenth of the training tokens best.
    """

    def __init__(self, tokens: np.ndarray, vocabulary: int) -> None:
        """Count the tokens of samples of shape (n, width), and choose k."""
        self._vocabulary = vocabulary
        held_out = max(1, len(tokens) // 10)
        self._count(tokens[:-held_out] if len(tokens) > 1 else tokens)
        previous, targets = tokens[-held_out:, :-1], tokens[-held_out:, 1:]
        self.concentration = min(
            CONCENTRATIONS,
            key=lambda k: float(self._compute_smoothed_cost(previous, targets, k).sum()),
        )
        # After k is chosen, the held-out samples are counted too.
        self._count(tokens)

    def compute_unigram_cost(self, targets: np.ndarray) -> np.ndarray:
        """Return −ln p(target) for targets of any shape."""
        return -np.log(self._unigram[targets])

    def compute_bigram_cost(self, previous: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return −ln p(target | previous) for arrays of the same shape."""
        return self._compute_smoothed_cost(previous, targets, self.concentration)

    def predict_likeliest(self, previous: np.ndarray) -> np.ndarray:
        """Return the most likely token after each of ``previous``."""
        return self._best[previous]

    def _count(self, tokens: np.ndarray) -> None:
        """Count tokens and pairs of tokens in samples of shape (n, width)."""
        previous, targets = tokens[:, :-1].astype(np.int64), tokens[:, 1:]
        pairs, counts = np.unique(previous * self._vocabulary + targets, return_counts=True)
        self._pairs, self._pair_counts = pairs, counts
        self._previous = np.bincount(previous.ravel(), minlength=self._vocabulary)
        frequency = np.bincount(targets.ravel(), minlength=self._vocabulary)
        self._unigram = (frequency + 1) / (targets.size + self._vocabulary)
        self.commonest = int(frequency.argmax())
        order = np.argsort(counts, kind="stable")  # the most frequent pair is written last
        self._best = np.full(self._vocabulary, self.commonest)
        self._best[pairs[order] // self._vocabulary] = pairs[order] % self._vocabulary

    def _compute_smoothed_cost(
        self, previous: np.ndarray, targets: np.ndarray, k: float
    ) -> np.ndarray:
        """Return −ln p(target | previous) with concentration ``k``."""
        code = previous.astype(np.int64) * self._vocabulary + targets
        # A pair after the last known one has index len(pairs). It is replaced by the last index,
        # whose pair differs, so that its count is 0.
        indices = np.minimum(np.searchsorted(self._pairs, code), len(self._pairs) - 1)
        pair_counts = np.where(self._pairs[indices] == code, self._pair_counts[indices], 0)
        return -np.log((pair_counts + k * self._unigram[targets]) / (self._previous[previous] + k))


def measure_baselines(
    train: Dataset, test: Dataset, tokenizer: Tokenizer, limit: int
) -> dict[str, dict[str, float]]:
    """Return the metrics of a unigram and a bigram model, from at most ``limit`` train tokens."""
    [width] = train.fields["tokens"].shape or ()
    count = min(len(train), max(1, limit // width))
    model = Bigram(train.read(np.arange(count))["tokens"], tokenizer.size)

    def measure_unigram(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        targets = samples[:, 1:]
        return model.compute_unigram_cost(targets), targets == model.commonest

    def measure_bigram(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        previous, targets = samples[:, :-1], samples[:, 1:]
        return model.compute_bigram_cost(previous, targets), targets == model.predict_likeliest(
            previous
        )

    results = {}
    for name, predict in (("unigram", measure_unigram), ("bigram", measure_bigram)):
        metric_values = compute_metrics(score_documents(test, tokenizer, predict, SCORED_SAMPLES))
        results[name] = {metric: entry["value"] for metric, entry in metric_values.items()}
    return results


# The transformer's weights under Hugging Face's names for Llama and Qwen.
#
# The model is a Llama, or with biases of queries, keys and values a Qwen2, or with norms of queries
# and keys a Qwen3. So its artifact can be loaded without our code, with
# ``AutoModelForCausalLM.from_pretrained`` and other software that reads that format. Also, models
# in that format can be loaded here.

BLOCK_NAMES = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.out.weight": "self_attn.o_proj.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
    **{f"feed_forward.{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
}
"""Mapping of our names of a block's weights to Hugging Face's. q, k and v are one matrix in ours.
"""
QKV = tuple(f"self_attn.{letter}_proj" for letter in "qkv")
NORMS = {f"attention.{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"}


def iter_weight_names(config: LanguageModelConfig) -> Iterator[tuple[str, str]]:
    """Yield (our name, Hugging Face's) of each weight that is a single one in both formats."""
    yield "embedding.weight", "model.embed_tokens.weight"
    yield "norm.weight", "model.norm.weight"
    block_names = BLOCK_NAMES | (NORMS if config.qk_norm else {})
    if config.attention_bias == "all":
        block_names |= {"attention.out.bias": "self_attn.o_proj.bias"}
    for block in range(config.layers):
        our_prefix, their_prefix = f"blocks.{block}.", f"model.layers.{block}."
        yield from (
            (our_prefix + our_name, their_prefix + their_name)
            for our_name, their_name in block_names.items()
        )
    if not config.tie_embeddings:
        yield "unembedding.weight", "lm_head.weight"


def iter_joined_names(config: LanguageModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name of ``attention.qkv``'s weight or bias, Hugging Face's of q, k and v)."""
    kinds = ("weight",) if config.attention_bias == "none" else ("weight", "bias")
    for block in range(config.layers):
        for kind in kinds:
            their_names = tuple(f"model.layers.{block}.{name}.{kind}" for name in QKV)
            yield f"blocks.{block}.attention.qkv.{kind}", their_names


def split_qkv(config: LanguageModelConfig, qkv: Tensor) -> list[Tensor]:
    """Split (kv_heads × (heads / kv_heads + 2) × width, …) into q, k and v."""
    group_size = config.heads // config.groups
    groups = qkv.unflatten(0, (config.groups, group_size + 2, -1))
    return [part.flatten(0, 2) for part in groups.split((group_size, 1, 1), dim=1)]


def join_qkv(config: LanguageModelConfig, parts: list[Tensor]) -> Tensor:
    """Join q, k and v; the inverse of ``split_qkv``."""
    split = [part.unflatten(0, (config.groups, -1, config.head_width)) for part in parts]
    return torch.cat(split, 1).flatten(0, 2)


def export_names(config: LanguageModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the given weights under Hugging Face's names, with ``attention.qkv`` split."""
    tensors = {
        their_name: weights[our_name]
        for our_name, their_name in iter_weight_names(config)
        if our_name in weights
    }
    for our_name, their_names in iter_joined_names(config):
        if our_name in weights:
            tensors |= zip(their_names, split_qkv(config, weights[our_name]), strict=True)
    return tensors


def restore_names(config: LanguageModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under our names; the inverse of ``export_names``.

    Raises:
        KeyError: a weight is missing.
    """
    tensors = {our_name: weights[their_name] for our_name, their_name in iter_weight_names(config)}
    for our_name, their_names in iter_joined_names(config):
        tensors[our_name] = join_qkv(config, [weights[name] for name in their_names])
    return tensors


def export_adapters(
    config: LanguageModelConfig, adapters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return adapters under the names of the exported layers.

    An adapter of ``attention.qkv`` becomes three, which have the same A and a part of B each.
    """
    new_names = {
        our_name.removesuffix(".weight"): their_name
        for our_name, their_name in iter_weight_names(config)
    }
    parts = {
        our_name.removesuffix(".weight"): their_names
        for our_name, their_names in iter_joined_names(config)
    }
    tensors: dict[str, Tensor] = {}
    for name, tensor in adapters.items():
        layer, _, kind = name.rpartition(".")
        their_names = parts.get(layer, (new_names.get(layer, ""),))
        split = split_qkv(config, tensor) if layer in parts and kind == "lora_B" else [tensor] * 3
        for their, part in zip(their_names, split, strict=False):
            tensors[f"{their.removesuffix('.weight')}.{kind}"] = part
    return tensors


def choose_hugging_face_class(config: LanguageModelConfig) -> tuple[str, str]:
    """Return (``model_type``, class name) with which transformers loads the model."""
    if config.qk_norm:
        return "qwen3", "Qwen3ForCausalLM"
    if config.attention_bias == "qkv":
        return "qwen2", "Qwen2ForCausalLM"
    return "llama", "LlamaForCausalLM"


def build_hugging_face_config(
    config: LanguageModelConfig, vocabulary: int, end: int
) -> dict[str, Any]:
    """Return Hugging Face's config.json.

    ``vocabulary`` is the number of the embedding's rows, and ``end`` the end token.
    """
    model_type, name = choose_hugging_face_class(config)
    scaling = config.rope_scaling.model_dump() if config.rope_scaling else None
    return {
        "architectures": [name],
        "model_type": model_type,
        "vocab_size": vocabulary,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.groups,
        "head_dim": config.head_width,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps or torch.finfo(torch.float32).eps,  # nn.RMSNorm's default
        "rope_theta": config.rope_theta,
        **({"rope_scaling": scaling} if scaling else {}),
        "hidden_act": "silu",
        "attention_bias": config.attention_bias == "all",
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": end,
        "eos_token_id": end,
    }


# Requests to the language model, which ask for the loss of a text.
#
# {"text": "def f(x):"}        a document, packed as the shard step packs a single one
# {"prompt": "…", "completion": "…"}   if records are completions: the loss of the completion
# {"tokens": [102, 32, …]}     a sample as stored in a shard: context_length + 1 tokens

BATCH = 16  # samples per forward pass, so that a long text does not exceed the memory


def answer_requests(
    packing: Packing, model: nn.Module, requests: Sequence[Mapping[str, Any]]
) -> list[dict[str, float]]:
    """Return ``bits_per_byte`` of each request, and the ``nats``, ``bytes`` and ``tokens`` of it.

    They are the same sums as those of the evaluation for the same samples.

    Raises:
        DataError: a request contains neither a text nor tokens, or nothing to predict.
    """
    pairs = [_pack_request(packing, request) for request in requests]
    samples = np.concatenate([tokens for tokens, _ in pairs])
    sizes = [
        int(np.sum(packing.tokenizer.token_bytes[tokens[:, 1:]], where=target_mask))
        for tokens, target_mask in pairs
    ]
    if 0 in sizes:
        raise DataError("the request holds no text whose bytes could be predicted; send more")
    starts = range(0, len(samples), BATCH)
    nats = np.concatenate(
        [_compute_nats(model, samples[start : start + BATCH]) for start in starts]
    )
    ends = np.cumsum([len(tokens) for tokens, _ in pairs])
    return [
        _format_response(nats[end - len(target_mask) : end], target_mask, size)
        for end, (_, target_mask), size in zip(ends, pairs, sizes, strict=True)
    ]


def compute_token_costs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return −ln p of each target, (n, t), from logits (n, t, vocabulary)."""
    flat = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.view_as(targets)


def _format_response(nats: np.ndarray, target_mask: np.ndarray, size: int) -> dict[str, float]:
    """Return the response for a request: sums over the targets with a loss."""
    total = float(np.sum(nats, where=target_mask, dtype=np.float64))
    return {
        "bits_per_byte": total / math.log(2) / size,
        "nats": total,
        "bytes": size,
        "tokens": int(target_mask.sum()),
    }


def _compute_nats(model: nn.Module, samples: np.ndarray) -> np.ndarray:
    """Return −ln p of every target, shape (n, width - 1)."""
    batch = torch.from_numpy(samples.astype(np.int64)).to(next(model.parameters()).device)
    return compute_token_costs(model(batch[:, :-1]).float(), batch[:, 1:]).cpu().numpy()


def _pack_request(packing: Packing, request: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return (samples (n, context_length + 1) in the stored type, mask of targets with a loss)."""
    if set(request) == {*packing.columns} and all(isinstance(t, str) for t in request.values()):
        fields = _pack_texts(packing, request)
        if COUNTED_FIELD in fields:
            return fields["tokens"], fields[COUNTED_FIELD].astype(bool)
        samples = fields["tokens"]
    elif set(request) == {"tokens"} and isinstance(request["tokens"], list):
        size, tokens = packing.tokenizer.size, request["tokens"]
        if len(tokens) != packing.width or not all(
            type(token) is int and 0 <= token < size for token in tokens
        ):
            raise DataError(f"tokens: expected {packing.width} integers from 0 to {size - 1}")
        samples = np.array([tokens], packing.dtype)
    else:
        field_names = ", ".join(sorted(map(str, request))) or "nothing"
        texts = ", ".join(f'"{name}": "…"' for name in packing.columns)
        raise DataError(
            f'the request holds {field_names}; expected {{{texts}}}, or {{"tokens": […]}} with '
            f"{packing.width} numbers"
        )
    return samples, ~find_padding(samples, packing.tokenizer.end)


def _pack_texts(packing: Packing, texts: Mapping[str, str]) -> Samples:
    """Pack one record, as the shard step does."""
    import pyarrow as pa  # here, because training does not need it

    packer = packing.packer()
    try:
        record = pa.record_batch({n: pa.array([text], pa.string()) for n, text in texts.items()})
    except UnicodeEncodeError:
        names = ", ".join(texts)
        raise DataError(
            f"{names}: holds half of a surrogate pair, which is not a character"
        ) from None
    complete, remaining = packer.add(record), packer.flush()
    return {name: np.concatenate([complete[name], remaining[name]]) for name in complete}
