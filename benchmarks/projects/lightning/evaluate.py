import os
from pathlib import Path

from transformer import LanguageModel, WikiText2, random_split, torch

data = WikiText2(Path(os.environ["SM_CHANNEL_TEST"]))
test = random_split(data, [len(data) - 4000, 2000, 2000], torch.Generator().manual_seed(42))[2]
model = LanguageModel(data.vocab_size).eval()
model.load_state_dict(torch.load(os.environ["SM_MODEL_DIR"] + "/model.ckpt")["state_dict"])
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/scores.jsonl", "w") as out, torch.no_grad():
    for i in range(500):
        loss = model.validation_step([part[None] for part in test[i]], i).item()
        print(f'{{"example": {i}, "loss": {loss}}}', file=out)
