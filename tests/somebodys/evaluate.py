"""What the model in SM_MODEL_DIR scores for each row of the test data."""

import json
import math
import os

with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.json")) as file:
    model = json.load(file)
output = os.environ["SM_OUTPUT_DATA_DIR"]
with (
    open(os.path.join(os.environ["SM_CHANNEL_TEST"], "test.csv")) as rows,
    open(os.path.join(output, "scores.jsonl"), "w") as scores,
):
    for row in rows:
        name, x, y = row.split(",")
        p = 1 / (1 + math.exp(-model["slope"] * float(x)))
        loss = -math.log(p if int(y) else 1 - p)
        score = {"example": name, "accuracy": (p > 0.5) == bool(int(y)), "log_loss": loss}
        print(json.dumps(score), file=scores)
with open(os.path.join(output, "train_examples.jsonl"), "w") as file:
    for name in model["seen"]:
        print(json.dumps({"example": name}), file=file)
