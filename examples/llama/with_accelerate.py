"""Your own loop with Accelerate on the Shard step's shards: resumes bit for bit."""

import argparse
import os
from pathlib import Path

import llama
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

from training.data.torch_dataset import ShardDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max_steps", type=int, default=100)
    parser.add_argument("--micro_batch", type=int, default=4, help="samples of a rank")
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--save_steps", type=int, default=20)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoints", type=Path, default=Path("/opt/ml/checkpoints"))
    options = parser.parse_args()

    set_seed(options.seed)
    accelerator = Accelerator()
    batch = options.micro_batch * accelerator.num_processes
    train = ShardDataset(
        os.environ["SM_CHANNEL_TRAIN"],
        seed=options.seed,
        samples=options.max_steps * batch,
        transform=llama.inputs,
    )
    model = llama.model(dropout=options.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, train.loader(options.micro_batch)
    )
    accelerator.register_for_checkpointing(train)
    if saved := sorted(options.checkpoints.glob("step-*")):
        accelerator.load_state(str(saved[-1]))
    done = train.position // batch
    for step, inputs in zip(range(done + 1, options.max_steps + 1), loader, strict=False):
        loss = model(**inputs).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        train.advance(batch)
        accelerator.print(f"step={step} loss={accelerator.reduce(loss, 'mean').item()}", flush=True)
        if step % options.save_steps == 0:
            save_checkpoint(accelerator, options.checkpoints / f"step-{step:08d}")
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(os.environ["SM_MODEL_DIR"])
    accelerator.end_training()


def save_checkpoint(accelerator: Accelerator, folder: Path) -> None:
    """Save a checkpoint on each node; it gets its name ``folder`` only once it is complete."""
    unfinished = folder.with_name(f"unfinished-{folder.name}")
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()
    if accelerator.is_local_main_process:
        unfinished.rename(folder)


if __name__ == "__main__":
    main()
