"""Hugging Face's Trainer, with what only costs time switched off: bars, loggers, checkpoints."""

from os import environ

import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from benchmarks.training.contenders.hand import compute_mean_loss
from benchmarks.training.setting import Setting, print_mean_loss, read_setting


class Share(IterableDataset):
    """This rank's share of every batch."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __iter__(self):
        share = self.setting.iter_share(int(environ["RANK"]), int(environ["WORLD_SIZE"]))
        return ({"tokens": tokens} for tokens in share)


class Ours(Trainer):
    """Trainer with the setting's batches and loss."""

    setting: Setting
    last: torch.Tensor

    def get_train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_dataset, batch_size=None)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.last = compute_mean_loss(model, inputs["tokens"], self.setting)
        return self.last


class Say(TrainerCallback):
    """Prints the mean loss after the steps that are logged."""

    trainer: Ours

    def on_step_end(self, args, state, control, **_):
        if self.trainer.setting.is_logged(state.global_step):
            print_mean_loss(state.global_step, self.trainer.last)


def main() -> None:
    setting = read_setting()
    model = setting.model()
    optimizer = setting.optimizer(model)
    schedule = setting.make_schedule(optimizer)
    arguments = TrainingArguments(
        output_dir=setting.output,
        use_cpu=True,
        max_steps=setting.steps,
        max_grad_norm=setting.grad_clip,
        per_device_train_batch_size=setting.global_batch // int(environ["WORLD_SIZE"]),
        average_tokens_across_devices=False,
        ddp_find_unused_parameters=False,
        ddp_backend="gloo",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        bf16=False,
    )
    say_loss = Say()
    trainer = Ours(
        model,
        arguments,
        train_dataset=Share(setting),
        optimizers=(optimizer, schedule),
        callbacks=[say_loss],
    )
    trainer.setting, say_loss.trainer = setting, trainer
    trainer.train()


if __name__ == "__main__":
    main()
