"""Lightning's Trainer on the Shard step's shards: resumes bit for bit."""

import argparse
import os
from pathlib import Path

import lightning
import llama
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from training.data.torch_dataset import ShardDataset, ShardLoader


class Module(lightning.LightningModule):
    def __init__(self, options: argparse.Namespace, train: ShardDataset) -> None:
        super().__init__()
        self.options, self.train_samples, self.model = options, train, llama.model()

    def train_dataloader(self) -> ShardLoader:
        """Return a loader whose position Lightning saves, and restores before the first batch."""
        ranks = {"rank": self.trainer.global_rank, "world": self.trainer.world_size}
        return self.train_samples.loader(self.options.micro_batch, **ranks)

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        loss = self.model(**batch).loss
        self.train_samples.advance(self.options.micro_batch * self.trainer.world_size)
        if self.trainer.is_global_zero:
            print(f"step={self.global_step + 1} loss={loss.item()}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.options.learning_rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max_steps", type=int, default=100)
    parser.add_argument("--micro_batch", type=int, default=4, help="samples of a rank")
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--save_steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoints", type=Path, default=Path("/opt/ml/checkpoints"))
    options = parser.parse_args()

    lightning.seed_everything(options.seed)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    train = ShardDataset(
        os.environ["SM_CHANNEL_TRAIN"],
        seed=options.seed,
        samples=options.max_steps * options.micro_batch * world,
        transform=llama.inputs,
    )
    trainer = lightning.Trainer(
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=world // int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp" if world > 1 else "auto",
        max_steps=options.max_steps,
        gradient_clip_val=1.0,
        use_distributed_sampler=False,  # the loader gives each rank its part
        default_root_dir=os.environ.get("SM_OUTPUT_DATA_DIR"),
        logger=False,
        enable_progress_bar=False,
        callbacks=[
            ModelCheckpoint(
                options.checkpoints,
                "step-{step:08d}",
                save_top_k=-1,
                every_n_train_steps=options.save_steps,
                auto_insert_metric_name=False,
            )
        ],
    )
    saved = sorted(options.checkpoints.glob("step-*.ckpt"))
    module = Module(options, train)
    trainer.fit(module, ckpt_path=saved[-1] if saved else None)
    if trainer.is_global_zero:
        module.model.save_pretrained(os.environ["SM_MODEL_DIR"])


if __name__ == "__main__":
    main()
