"""Trains in one process; it uses only the variables that SageMaker sets for any script."""

import argparse
import json
import os
from pathlib import Path

import torch
from model import Network, read
from torch.nn.functional import binary_cross_entropy_with_logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    ids, features, labels = read(os.environ["SM_CHANNEL_TRAINING"])
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    for epoch in range(1, options.epochs + 1):
        loss = binary_cross_entropy_with_logits(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            print(f"epoch={epoch} loss={loss.item():.6f}", flush=True)
    folder = Path(os.environ["SM_MODEL_DIR"])
    torch.save(model.state_dict(), folder / "weights.pt")
    (folder / "trained_on.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    main()
