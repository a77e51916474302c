"""Use a ``ShardDataset`` with Hugging Face's Trainer; each checkpoint saves its position.

train = ShardDataset(os.environ["SM_CHANNEL_TRAIN"], samples=max_steps * global_batch)
arguments = TrainingArguments(..., train_sampling_strategy="sequential", ignore_data_skip=True)
trainer = Trainer(model, arguments, data_collator=collate, train_dataset=train,
                  callbacks=[KeepPosition(train)])
trainer.train(resume_from_checkpoint=newest_checkpoint(arguments.output_dir))
"""

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.data.torch_dataset import ShardDataset
from trainyard.common.errors import TrainingError

KEY = "ShardDataset"
"""Key of the position among a checkpoint's ``stateful_callbacks``."""

STATE = "trainer_state.json"
"""File that Trainer writes last into a checkpoint."""


class KeepPosition(TrainerCallback):
    """Count the samples trained on, so that a resumed run continues with the next sample.

    The position is stored in the checkpoint's trainer_state.json, so every checkpoint has it.
    """

    def __init__(self, train: ShardDataset) -> None:
        self.train = train

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: DataLoader | None = None,
        **_: Any,
    ) -> None:
        """Restore the position of the checkpoint that was loaded, if one was.

        Raises:
            TrainingError: an argument would shuffle or skip samples, or cut batches short; or the
                checkpoint was saved without this callback.
        """
        self._check(args)
        callbacks: Any = (
            state.stateful_callbacks
        )  # a dict at this point, contrary to its annotation
        if state.global_step and KEY not in callbacks:
            raise TrainingError(
                f"the checkpoint of step {state.global_step} does not contain its position in the "
                "data: it was saved without KeepPosition; start from the beginning, or set "
                "ignore_data_skip=False and leave KeepPosition out"
            )
        self.train.load_state_dict(callbacks.get(KEY, {"position": 0}))
        # A resumed run begins one more pass over the data than an uninterrupted one. Without a
        # generator of its own, each pass would draw from the random state that Trainer restores,
        # and the next dropout would differ.
        loader = getattr(train_dataloader, "base_dataloader", train_dataloader)
        if loader is not None and loader.generator is None:
            loader.generator = torch.Generator()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Count the step's samples, and store the position in the Trainer's state."""
        self.train.advance(global_batch(args))
        callbacks: Any = state.stateful_callbacks
        callbacks[KEY] = self.train.state_dict()

    def _check(self, args: TrainingArguments) -> None:
        """Raise TrainingError if an argument would shuffle, skip or cut off samples."""
        requirements = {"train_sampling_strategy": "sequential", "ignore_data_skip": True}
        for name, value in requirements.items():
            if getattr(args, name) != value:
                raise TrainingError(
                    f"TrainingArguments.{name}: is {getattr(args, name)!r}; a ShardDataset with "
                    f"KeepPosition needs {value!r}: it sets order and position itself"
                )
        if len(self.train) % (batch := global_batch(args)):
            raise TrainingError(
                f"ShardDataset(samples={len(self.train)}): is not a multiple of the global batch, "
                f"{batch}; give it max_steps × {batch}"
            )


def global_batch(args: TrainingArguments) -> int:
    """Return the number of samples of an optimizer step, over all ranks."""
    return args.train_batch_size * args.gradient_accumulation_steps * args.world_size


def newest_checkpoint(folder: Path | str) -> str | None:
    """Return the newest complete checkpoint in Trainer's output folder, or None.

    ``transformers.trainer_utils.get_last_checkpoint`` is not used: it returns the newest one even
    if the process was killed while writing it.
    """
    checkpoints = {
        int(match[1]): path
        for path in Path(folder).glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name))
    }
    complete_paths = (
        str(checkpoints[number])
        for number in sorted(checkpoints, reverse=True)
        if _is_complete(checkpoints[number])
    )
    return next(complete_paths, None)


def _is_complete(checkpoint: Path) -> bool:
    try:
        # Trainer writes this file last: a process killed while saving has not written it, or only
        # partly.
        json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True
