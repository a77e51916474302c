"""Lightning's Trainer, with what only costs time switched off: bars, loggers, checkpoints."""

from os import environ

import lightning
import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.training.contenders.hand import compute_mean_loss
from benchmarks.training.setting import Setting, print_mean_loss, read_setting


class Module(lightning.LightningModule):
    """The model with the setting's loss and optimizer."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting, self.model = setting, setting.model()

    def training_step(self, tokens: torch.Tensor) -> torch.Tensor:
        return compute_mean_loss(self.model, tokens, self.setting)

    def on_train_batch_end(self, outputs: dict, batch: torch.Tensor, batch_idx: int) -> None:
        if self.setting.is_logged(batch_idx + 1):
            print_mean_loss(batch_idx + 1, outputs["loss"])

    def configure_optimizers(self) -> dict:
        optimizer = self.setting.optimizer(self.model)
        every_step = {"scheduler": self.setting.make_schedule(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": every_step}


class Share(IterableDataset):
    """This rank's share of every batch."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __iter__(self):
        return self.setting.iter_share(int(environ["RANK"]), int(environ["WORLD_SIZE"]))


def main() -> None:
    setting = read_setting()
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(environ["WORLD_SIZE"]),
        max_steps=setting.steps,
        gradient_clip_val=setting.grad_clip,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        use_distributed_sampler=False,
        default_root_dir=setting.output,
    )
    trainer.fit(Module(setting), DataLoader(Share(setting), batch_size=None))


if __name__ == "__main__":
    main()
