"""Scores the trees on the channel test, row by row."""

import json
import os
from pathlib import Path

import numpy as np
import xgboost as xgb


def main() -> None:
    model = xgb.Booster(model_file=Path(os.environ["SM_MODEL_DIR"]) / "xgboost-model")
    files = sorted(Path(os.environ["SM_CHANNEL_TEST"]).glob("*.csv"))
    rows = np.concatenate([np.loadtxt(file, delimiter=",", ndmin=2) for file in files])
    label, probability = rows[:, 0], model.predict(xgb.DMatrix(rows[:, 1:]))
    with (Path(os.environ["SM_OUTPUT_DATA_DIR"]) / "scores.jsonl").open("w") as out:
        for number, (truth, one) in enumerate(zip(label, probability.astype(float), strict=True)):
            row = {
                "example": number,
                "log_loss": -float(np.log(one if truth else 1 - one)),
                "accuracy": bool((one > 0.5) == truth),
                "probability": float(one),
                "label": int(truth),
            }
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
