"""Scores the model in SM_MODEL_DIR on the test rows; the gate decides by this output."""

import json
import os
from pathlib import Path

import torch
from model import Network, read
from torch.nn.functional import binary_cross_entropy_with_logits


def main():
    folder = Path(os.environ["SM_MODEL_DIR"])
    model = Network()
    model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    ids, features, labels = read(os.environ["SM_CHANNEL_TEST"])
    with torch.no_grad():
        logits = model(features)
    losses = binary_cross_entropy_with_logits(logits, labels, reduction="none").tolist()
    output = Path(os.environ["SM_OUTPUT_DATA_DIR"])
    with (output / "scores.jsonl").open("w") as scores:
        for name, logit, label, loss in zip(ids, logits, labels, losses, strict=True):
            row = {"example": name, "accuracy": bool((logit > 0) == (label > 0)), "log_loss": loss}
            row |= {"probability": logit.sigmoid().item(), "label": int(label)}
            print(json.dumps(row), file=scores)
    with (output / "train_examples.jsonl").open("w") as file:
        for name in json.loads((folder / "trained_on.json").read_text()):
            print(json.dumps({"example": name}), file=file)


if __name__ == "__main__":
    main()
