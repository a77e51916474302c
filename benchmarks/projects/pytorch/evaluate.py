import json
import os

import data
import torch

tokens = data.Corpus(os.environ["SM_CHANNEL_TEST"]).test
model = torch.load(os.environ["SM_MODEL_DIR"] + "/model.pt", weights_only=False).eval()
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/scores.jsonl", "w") as out, torch.no_grad():
    for i, block in enumerate(tokens[: len(tokens) // 36 * 36].view(-1, 36)):
        output, _ = model(block[:-1, None], model.init_hidden(1))
        loss = torch.nn.functional.nll_loss(output, block[1:], reduction="sum").item()
        print(json.dumps({"example": i, "loss.sum": loss, "loss.weight": 35}), file=out)
