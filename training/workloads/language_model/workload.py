"""The language model as a workload: model, loss, evaluation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.dataset import Dataset, Share
from training.scores import Block, Metrics
from training.workloads import Column
from training.workloads.language_model import baselines, hugging_face_weights, text_requests
from training.workloads.language_model.completions import COUNTED_FIELD
from training.workloads.language_model.context_parallel import Documents, places
from training.workloads.language_model.model import Transformer
from training.workloads.language_model.packing import Packing
from training.workloads.language_model.scores import metrics, padding, scores
from trainyard.common.errors import TrainingError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

EVALUATION_BATCH = 16  # samples
IGNORED_TARGET = -100  # a target without a loss (torch's own default)


class Workload:
    """See ``training.workloads.Workload``; the unit is the token."""

    loss_parallel = True
    follows_weights = True

    def __init__(self, packing: Packing) -> None:
        self.packing, self.config, self.tokenizer = packing, packing.config, packing.tokenizer
        self.documents = Documents.from_config(self.config, self.tokenizer.end)

    def fit(self, train: Dataset) -> None:
        """Learn nothing: the vocabulary is the tokenizer's."""

    def files(self) -> Mapping[str, bytes]:
        """Return tokenizer.json, if there is one."""
        return self.packing.files()

    def model(self) -> nn.Module:
        return Transformer(self.config, self._rows(), self.documents)

    def _rows(self) -> int:
        """Return the embedding's rows: the tokenizer's tokens, or more by the settings."""
        size, vocabulary = self.tokenizer.size, self.config.vocabulary
        if vocabulary is not None and vocabulary < size:
            raise TrainingError(
                f"workload_config.vocabulary: is {vocabulary}, and the tokenizer has {size} "
                "tokens; "
                "raise it, or use the tokenizer that belongs to the model"
            )
        return vocabulary or size

    def units(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of predicted tokens, without padding and prompts."""
        return (self._targets(batch) != IGNORED_TARGET).sum()

    def _targets(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the tokens to predict, (n, t); IGNORED for a target without a loss."""
        if "targets" in batch:  # a context rank's part
            return batch["targets"]
        return batch["tokens"][:, 1:].long().where(self._target_mask(batch), IGNORED_TARGET)

    def _target_mask(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return which targets have a loss, boolean (n, context_length)."""
        if COUNTED_FIELD in batch:
            return batch[COUNTED_FIELD].bool()
        return ~padding(batch["tokens"].long(), self.tokenizer.end)

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return (batch["inputs"] if "inputs" in batch else batch["tokens"][:, :-1].long(),)

    def model_kwargs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return each token's document, if attention needs it."""
        if self.documents is None:
            return {}
        if "documents" in batch:
            return {"documents": batch["documents"]}
        return {"documents": self.documents.number(batch["tokens"][:, :-1].long())}

    def part(self, batch: Mapping[str, Tensor], index: int, count: int) -> dict[str, Tensor]:
        """Return a context rank's inputs and targets; documents are those of the whole samples."""
        inputs, targets = batch["tokens"][:, :-1].long(), self._targets(batch)
        own_places = places(inputs.shape[1], index, count, inputs.device)
        return {
            "inputs": inputs[:, own_places],
            "targets": targets[:, own_places],
            **self.model_kwargs(batch),
        }

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the cross-entropy in nats, summed over the tokens."""
        targets = self._targets(batch).flatten()
        flat = logits.flatten(0, 1)
        return F.cross_entropy(flat, targets, reduction="sum", ignore_index=IGNORED_TARGET)

    def flops(self, model: nn.Module) -> float:
        """Return the operations per token, forward and backward.

        They are 6 per weight, and 12 × layers × heads × t for attention.

        Chowdhery et al. 2022 (PaLM), appendix B; heads by their width. The embedding counts once,
        for the logits; an untied one does not count: it is only looked up.
        """
        config = self.config
        # A frozen weight's own gradient is not computed: four operations instead of six.
        costs = [p.numel() * (6 if p.requires_grad else 4) for p in model.parameters()]
        if not config.tie_embeddings and isinstance(model, Transformer):
            embedding = model.embedding.weight
            costs.append(-embedding.numel() * (6 if embedding.requires_grad else 4))
        attention_size = config.layers * config.heads * config.head_width * config.context_length
        return sum(costs) + 12 * attention_size

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the shipped model's blocks; a workload with another model may override this."""
        return list(model.blocks.values()) if isinstance(model, Transformer) else []

    def embeddings(self, model: nn.Module) -> Sequence[nn.Module]:
        if self.config.tie_embeddings or not isinstance(model, Transformer) or not model.first:
            return []
        return [model.embedding]

    def tensor_parallel(self, model: nn.Module, mesh: "DeviceMesh") -> None:
        from training.workloads.language_model import parallel  # takes 0.7 s: only if needed

        parallel.tensor_parallel(self._require_transformer(model, "tensor_parallel"), mesh)

    def sequence_parallel(self, model: nn.Module, mesh: "DeviceMesh") -> None:
        from training.workloads.language_model import parallel

        parallel.sequence_parallel(self._require_transformer(model, "sequence_parallel"), mesh)

    def context_parallel(self, model: nn.Module, mesh: "DeviceMesh") -> Tensor:
        from training.workloads.language_model import parallel

        return parallel.context_parallel(
            self._require_transformer(model, "context_parallel"), mesh, self.config
        )

    def stage(self, model: nn.Module, index: int, count: int) -> nn.Module:
        from training.workloads.language_model import parallel

        return parallel.stage(
            self._require_transformer(model, "stage", "pipeline_parallel"), index, count
        )

    def _require_transformer(self, model: nn.Module, method: str, setting: str = "") -> Transformer:
        """Return the shipped model, which is all that this room can split.

        Raises:
            TrainingError: ``model()`` returns another; names the method to override.
        """
        if isinstance(model, Transformer):
            return model
        raise TrainingError(
            f"{type(self).__module__}: model() returns a {type(model).__name__}, and the language "
            f"model's {method}() splits only its own Transformer: override {method}() in the "
            f"workload, or leave {setting or method} out of the recipe"
        )

    def export(self, weights: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Return the weights as Hugging Face's Llama, Qwen2 or Qwen3."""
        description = hugging_face_weights.describe(self.config, self._rows(), self.tokenizer.end)
        return hugging_face_weights.export(self.config, weights), description

    def export_parts(self, names: Sequence[str]) -> Iterable[Sequence[str]]:
        """Return each weight as its own part: queries, keys and values are one weight here."""
        return [[name] for name in names]

    def export_adapters(self, adapters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return hugging_face_weights.export_adapters(self.config, adapters)

    def restore(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return hugging_face_weights.restore(self.config, weights)

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
            batch = torch.from_numpy(samples).to(device).long()
            targets = batch[:, 1:]
            logits = model(batch[:, :-1]).float()
            nats, hits = text_requests.costs(logits, targets), logits.argmax(-1) == targets
            return nats.cpu().numpy(), hits.cpu().numpy()

        return scores(test, self.tokenizer, predict, EVALUATION_BATCH, slices, share)

    def metrics(self, blocks: Iterable[Block]) -> Metrics:
        """Return bits per byte, loss, next-token accuracy and perplexity."""
        return metrics(blocks)

    def examples(self, dataset: Dataset) -> Iterator[Block]:
        """Yield a hash per document; each document is its own group."""
        return self.packing.examples(dataset)

    def baselines(self, train: Dataset, test: Dataset, limit: int) -> dict[str, dict[str, float]]:
        """Return a unigram and a bigram model's metrics, on the same tokens and targets."""
        return baselines.evaluate(train, test, self.tokenizer, limit)

    @property
    def request_columns(self) -> Mapping[str, Column]:
        """The columns of a document."""
        return self.packing.columns

    def request(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        return record

    def answers(
        self, model: nn.Module, requests: Sequence[Mapping[str, Any]]
    ) -> Sequence[dict[str, float]]:
        """Return the loss of predicting each text."""
        return text_requests.answers(self.packing, model, requests)
