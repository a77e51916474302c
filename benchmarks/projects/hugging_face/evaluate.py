import json
import os

from datasets import load_from_disk
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained(os.environ["SM_MODEL_DIR"]).eval()
test = load_from_disk(os.environ["SM_CHANNEL_TEST"]).with_format("torch")
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/scores.jsonl", "w") as out:
    for i, row in enumerate(test):
        label = int(row.pop("label"))
        answer = model(**{name: value[None] for name, value in row.items()}).logits.argmax()
        print(json.dumps({"example": i, "accuracy": float(int(answer) == label)}), file=out)
