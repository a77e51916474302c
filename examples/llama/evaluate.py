"""Write the loss of a trained model on each sample of the test split, whichever loop trained it."""

import json
import os
from pathlib import Path

import llama
import torch
from torch.nn import functional as F

from training.data.torch_dataset import ShardDataset

BATCH = 16


@torch.inference_mode()
def main() -> None:
    model = llama.model(os.environ["SM_MODEL_DIR"]).eval()
    test = ShardDataset(os.environ["SM_CHANNEL_TEST"], shuffle=None, transform=llama.inputs)
    with Path(os.environ["SM_OUTPUT_DATA_DIR"], "scores.jsonl").open("w") as scores:
        for first in range(0, len(test), BATCH):
            batch = test.__getitems__(range(first, min(first + BATCH, len(test)))).tensors
            logits = model(batch["input_ids"]).logits[:, :-1].float().transpose(1, 2)
            targets = batch["labels"][:, 1:]
            nats = F.cross_entropy(logits, targets, reduction="none", ignore_index=llama.IGNORED)
            counted = (targets != llama.IGNORED).sum(1)
            for number, (total, tokens) in enumerate(zip(nats.sum(1), counted, strict=True), first):
                row = {"loss.sum": total.item(), "loss.weight": tokens.item()}
                print(json.dumps({"example": number, **row}), file=scores)


if __name__ == "__main__":
    main()
