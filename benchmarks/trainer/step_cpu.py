"""CPU seconds of a step of the Trainer, over our shards or the usual dataset: run by ``cost``.

python -m benchmarks.trainer.step_cpu ours|memory|datasets SHARDS OUTPUT STEPS
"""

import sys
import time
from typing import Any

import torch
from torch.utils.data import Dataset as TorchDataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from training.data.dataset import Dataset
from training.data.hugging_face import KeepPosition
from training.data.torch_dataset import ShardDataset, collate

BATCH, FIRST = 8, 4  # the first steps warm up


class InMemory(TorchDataset):
    """All samples as one tensor, an item a dict: what people write."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Clock(TrainerCallback):
    def __init__(self, steps: int) -> None:
        self.steps, self.began = steps, 0.0

    def on_step_end(self, args, state, control, **_):
        if state.global_step == FIRST:
            self.began = time.process_time()
        if state.global_step == self.steps:
            print("cpu", (time.process_time() - self.began) / (self.steps - FIRST), flush=True)


def inputs(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tokens = batch["tokens"].long()
    return {"input_ids": tokens, "labels": tokens}


def usual(kind: str, folder: str, output: str) -> Any:
    """The same samples in memory, or in Hugging Face's datasets (memory-mapped Arrow)."""
    data = Dataset(folder)
    tokens = torch.from_numpy(data.read(range(len(data)))["tokens"]).long()
    if kind == "memory":
        return InMemory(tokens)
    import datasets

    rows = {"input_ids": tokens.numpy(), "labels": tokens.numpy()}
    datasets.Dataset.from_dict(rows).save_to_disk(f"{output}/arrow")
    return datasets.load_from_disk(f"{output}/arrow").with_format("torch")


def main() -> None:
    kind, folder, output, steps = sys.argv[1:4] + [int(sys.argv[4])]
    options: dict[str, Any] = {}
    callbacks: list[TrainerCallback] = [Clock(steps)]
    if kind == "ours":
        train = ShardDataset(folder, samples=steps * BATCH, transform=inputs)
        callbacks.append(KeepPosition(train))
        options = {"train_sampling_strategy": "sequential", "ignore_data_skip": True}
    else:
        train = usual(kind, folder, output)
    arguments = TrainingArguments(
        output_dir=output,
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        **options,
    )
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    collator = collate if kind == "ours" else None
    Trainer(
        LlamaForCausalLM(config),
        arguments,
        data_collator=collator,
        train_dataset=train,
        callbacks=callbacks,
    ).train()


if __name__ == "__main__":
    main()
