"""Scores the trees on the channel test, row by row, and the base rate for comparison."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import xgboost as xgb
from pyarrow import parquet
from shards import Features, Split


def main() -> None:
    folder, output = Path(os.environ["SM_MODEL_DIR"]), Path(os.environ["SM_OUTPUT_DATA_DIR"])
    train, test = (Split(os.environ[f"SM_CHANNEL_{name}"]) for name in ("TRAIN", "TEST"))
    features, rows = Features.read(folder / "features.json"), test.rows()
    model = xgb.Booster(model_file=folder / "xgboost-model")
    matrix = xgb.DMatrix(
        features.build_matrix(rows), feature_types=features.types, enable_categorical=True
    )
    write_scores(output / "scores.parquet", rows, model.predict(matrix), test)
    rate = np.full(len(rows), train.rows()["label"].mean())
    write_scores(output / "baseline.base_rate.parquet", rows, rate, test)
    days = np.unique(train.rows()["group"])
    parquet.write_table(
        pa.table({"example": [f"day {day}" for day in days], "group": days}),
        output / "train_examples.parquet",
    )


def write_scores(path: Path, rows: np.ndarray, probability: np.ndarray, test: Split) -> None:
    """Write a row of scores per example in the format of docs/gate.md; days are the groups."""
    label, predicted = rows["label"].astype(float), probability.astype(np.float64)
    table = {
        "example": np.arange(len(rows)),  # shards are ordered by their contents' hashes
        "group": rows["group"],
        "log_loss": -np.log(np.where(label == 1, predicted, 1 - predicted)),
        "accuracy": ((predicted > 0.5) == label).astype(float),
        "probability": predicted,
        "label": rows["label"],
    }
    if "month" in test.columns[0]:
        table["slice.month"] = list_months(rows, test)
    parquet.write_table(pa.table(table), path)


def list_months(rows: np.ndarray, test: Split) -> list[str]:
    """Return the month of each row as the raw data writes it."""
    column = test.columns[0].index("month")
    words = {code: value for value, code in test.values()[column].items()}
    return [words[code] for code in rows["categories"][:, column].tolist()]


if __name__ == "__main__":
    main()
