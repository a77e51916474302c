"""Hugging Face's Trainer resumes the data at its checkpoint's position."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from tests.training.trainings import write_dataset
from training.data.hugging_face import KeepPosition, global_batch, newest_checkpoint
from training.data.manifest import Field
from training.data.torch_dataset import ShardDataset, collate
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

STEPS, SAVE = 6, 2
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    rows = np.random.default_rng(0).integers(0, 32, (17, 9)).astype(np.uint16)
    write_dataset(folder, {"tokens": rows}, {"tokens": Field(dtype="uint16", shape=(9,))})
    return folder


def arguments(output: Path, **more) -> TrainingArguments:
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    steps = {"max_steps": STEPS, "save_steps": SAVE}
    ours = {"train_sampling_strategy": "sequential", "ignore_data_skip": True}
    quiet = {"dataloader_pin_memory": False, "report_to": "none", "disable_tqdm": True}
    given = {"use_cpu": True} | sizes | steps | ours | quiet | more
    return TrainingArguments(output_dir=str(output), **given)


class StopsAfter(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop |= state.global_step == self.step


def train(folder: Path, args: TrainingArguments, stop: int = STEPS) -> ShardDataset:
    """Train as a process does that is started or restarted; its weights are in output_dir."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    # A random number drawn too much makes other weights.
    drawn = {"num_attention_heads": 2, "attention_dropout": 0.5}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes, **drawn))
    data = ShardDataset(folder, samples=STEPS * global_batch(args), transform=inputs)
    given = {"data_collator": collate, "train_dataset": data}
    trainer = Trainer(model, args, callbacks=[KeepPosition(data), StopsAfter(stop)], **given)
    trainer.train(resume_from_checkpoint=newest_checkpoint(args.output_dir))
    trainer.save_model(args.output_dir)
    return data


def inputs(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tokens = batch["tokens"].long()
    return {"input_ids": tokens, "labels": tokens}


def test_a_training_that_is_stopped_and_started_again_makes_the_same_weights(folder, tmp_path):
    whole, parts = arguments(tmp_path / "whole"), arguments(tmp_path / "parts")
    expected = train(folder, whole)
    assert expected.state_dict() == {"position": STEPS * 4}
    train(folder, parts, stop=3)  # one step after a checkpoint: it comes again
    resumed = train(folder, parts)
    assert resumed.state_dict() == expected.state_dict()
    files = [Path(args.output_dir, WEIGHTS).read_bytes() for args in (whole, parts)]
    assert files[0] == files[1]


def test_a_checkpoint_that_was_not_written_to_its_end_is_passed_over(tmp_path):
    assert newest_checkpoint(tmp_path / "nothing") is None
    for step, state in ((9, "{}"), (10, '{"global_st'), (11, None), ("x", "{}")):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}/trainer_state.json").write_text(state)
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-9")


@pytest.mark.parametrize(("more", "message"), [
    ({"train_sampling_strategy": "random"}, "strategy: is .* needs 'sequential'"),
    ({"ignore_data_skip": False}, "ignore_data_skip: is False"),
    ({"gradient_accumulation_steps": 5}, r"samples=7\): is not a multiple .* batch, 10"),
])  # fmt: skip
def test_arguments_that_would_shuffle_skip_or_cut_are_refused(folder, tmp_path, more, message):
    keep = KeepPosition(ShardDataset(folder, samples=7))
    with pytest.raises(TrainingError, match=message):
        keep.on_train_begin(arguments(tmp_path, **more), None, None)


def test_a_checkpoint_without_a_position_is_refused(folder, tmp_path):
    class State:
        global_step, stateful_callbacks = 3, {}

    keep = KeepPosition(ShardDataset(folder, samples=8))
    with pytest.raises(TrainingError, match="step 3 does not contain its position in the data"):
        keep.on_train_begin(arguments(tmp_path), State(), None)
