"""Scores the line that train.py or train_keras.py learned, on the points of the channel test."""

import csv
import json
import os
from pathlib import Path


def main() -> None:
    folder, output = Path(os.environ["SM_MODEL_DIR"]), Path(os.environ["SM_OUTPUT_DATA_DIR"])
    line = json.loads((folder / "line.json").read_text())
    points = Path(os.environ["SM_CHANNEL_TEST"]) / "points.csv"
    with points.open() as file, (output / "scores.jsonl").open("w") as scores:
        for row in csv.DictReader(file):
            error = line["slope"] * float(row["point"]) + line["offset"] - float(row["value"])
            score = {"example": row["point"], "squared_error": error**2}
            scores.write(json.dumps(score) + "\n")


if __name__ == "__main__":
    main()
