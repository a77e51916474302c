"""A training that holds validation samples out for a later comparison."""

import json

import pytest
import torch

from tests.training.trainings import losses
from training.data.dataset import Dataset
from training.export.artifact import open_artifact

pytestmark = pytest.mark.long


def mean_loss(root, samples: range) -> float:
    """Return the exported model's loss on validation samples, computed here."""
    model = open_artifact(root / "model")[1]
    rows = torch.from_numpy(Dataset(root / "input/data/validation").read(samples)["numbers"]).long()
    log_p = torch.log_softmax(model(rows[:, 0]), -1).detach()
    costs = [-log_p[i, j, row[1 + j]].item() for i, row in enumerate(rows) for j in range(row[0])]
    return sum(costs) / len(costs)


def test_the_loss_on_the_last_samples_is_written_and_no_validation_uses_them(root, train):
    train(root, held_out_samples=5, validation_samples=100)
    trial = json.loads((root / "output/data/trial.json").read_text())
    assert trial["held_out_loss"] == pytest.approx(mean_loss(root, range(15, 20)), rel=1e-5)
    assert trial["validation_loss"] == losses(root, "validation_loss")[10]
    assert trial["validation_loss"] == pytest.approx(mean_loss(root, range(15)), rel=1e-5)
    assert trial["settings"]["learning_rate"] == 0.01 and trial["step"] == 10


def test_more_than_the_split_has_is_refused_before_the_first_step(root, train, capsys):
    with pytest.raises(SystemExit):
        train(root, held_out_samples=20)
    said = (root / "output/failure").read_text()
    assert "held_out_samples: 20 of the validation split's 20 samples leave none" in said
    assert not (root / "checkpoints").exists()
