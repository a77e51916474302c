"""Run Hugging Face's Trainer over the native loop's own module and loss."""

import json
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import HfArgumentParser, Trainer, TrainingArguments

from benchmarks.trainer.__main__ import MODEL, Setting, make_native_settings
from training.config import TrainConfig
from training.data.hugging_face import KeepPosition, global_batch
from training.data.torch_dataset import ShardDataset, collate
from training.loop import build_fresh_model
from training.weights.initial.build_model import materialize_model
from training.workloads import load_workload
from training.workloads.language_model.scores import find_padding

WORKLOAD = load_workload("language_model", MODEL)


@dataclass
class Precision:
    """An option beside those of the Trainer."""

    precision: str = "float32"
    """float64: weights, optimizer state and the Trainer's sum of the losses, as the native loop."""


class Ours(nn.Module):
    """Module that returns the mean loss over the global batch, in the form the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        config = TrainConfig(**make_native_settings(1, Setting()))
        self.model = materialize_model(build_fresh_model(config, WORKLOAD))

    def forward(
        self, tokens: torch.Tensor, num_items_in_batch: torch.Tensor, **_: Any
    ) -> dict[str, torch.Tensor]:
        batch = {"tokens": tokens}
        loss = WORKLOAD.loss(self.model(*WORKLOAD.inputs(batch)), batch)
        return {"loss": loss / num_items_in_batch}


def add_targets(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a batch with its targets, which the Trainer counts."""
    tokens = batch["tokens"].long()
    targets = tokens[:, 1:].masked_fill(find_padding(tokens, WORKLOAD.tokenizer.end), -100)
    return {"tokens": tokens, "labels": targets, "shift_labels": targets}


def main() -> None:
    parser = HfArgumentParser((Precision, TrainingArguments))
    parser.set_defaults(train_sampling_strategy="sequential", ignore_data_skip=True)
    parser.set_defaults(remove_unused_columns=False, report_to="none", disable_tqdm=True)
    chosen, arguments = parser.parse_args_into_dataclasses()
    samples = arguments.max_steps * global_batch(arguments)
    train = ShardDataset(os.environ["SM_CHANNEL_TRAIN"], samples=samples, transform=add_targets)
    module = Ours()
    if chosen.precision == "float64":
        module.double()  # the weights are float32's, as the native loop's are
        torch.set_default_dtype(torch.float64)  # in which the Trainer adds the losses up
    given = {"train_dataset": train, "callbacks": [KeepPosition(train)]}
    trainer = Trainer(module, arguments, data_collator=collate, **given)
    trainer.train()
    print(json.dumps({"steps": trainer.state.global_step}))


if __name__ == "__main__":
    main()
