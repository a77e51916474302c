"""Hugging Face's Trainer on the Shard step's shards: stopped and started again, bit for bit.

Every field of TrainingArguments is an argument, so a hyperparameter of the recipe.
"""

import os
from dataclasses import dataclass

import llama
from transformers import HfArgumentParser, Trainer, TrainingArguments, set_seed

from training.data.hugging_face import KeepPosition, global_batch, newest_checkpoint
from training.data.torch_dataset import ShardDataset, collate


@dataclass
class ModelOptions:
    base: str = ""
    """Folder of a model to start from; empty: fresh weights."""
    layers: int = 2
    dim: int = 128
    heads: int = 4
    dropout: float = 0.0


def main() -> None:
    parser = HfArgumentParser((ModelOptions, TrainingArguments))
    parser.set_defaults(
        output_dir="/opt/ml/checkpoints",
        train_sampling_strategy="sequential",  # the dataset has its own order
        ignore_data_skip=True,  # ... and its own position
        remove_unused_columns=False,
        save_on_each_node=True,  # each node has its own disk, and restarts from it
        report_to="none",
        disable_tqdm=True,
        ddp_backend=os.environ.get("TRAINING_BACKEND"),
    )
    sizes, arguments = parser.parse_args_into_dataclasses()
    set_seed(arguments.seed)
    train = ShardDataset(
        os.environ["SM_CHANNEL_TRAIN"],
        seed=arguments.seed,
        samples=arguments.max_steps * global_batch(arguments),
        transform=llama.inputs,
    )
    trainer = Trainer(
        llama.model(sizes.base, sizes.layers, sizes.dim, sizes.heads, sizes.dropout),
        arguments,
        data_collator=collate,
        train_dataset=train,
        callbacks=[KeepPosition(train)],
    )
    trainer.train(resume_from_checkpoint=newest_checkpoint(arguments.output_dir))
    trainer.save_model(os.environ["SM_MODEL_DIR"])


if __name__ == "__main__":
    main()
