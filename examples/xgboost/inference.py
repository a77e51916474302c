"""Handlers for AWS's inference toolkit: return the probability of a raw record, given as JSON."""

import json
from pathlib import Path

import xgboost as xgb
from shards import Features


def model_fn(model_dir: str) -> tuple[xgb.Booster, Features]:
    folder = Path(model_dir)
    model = xgb.Booster(model_file=folder / "xgboost-model")
    return model, Features.read(folder / "features.json")


def input_fn(body: str | bytes, content_type: str) -> dict:
    if content_type != "application/json":
        raise ValueError(f"{content_type} is not read; send application/json")
    return json.loads(body)


def predict_fn(record: dict, model: tuple[xgb.Booster, Features]) -> dict[str, float]:
    booster, features = model
    rows = xgb.DMatrix(
        features.build_row(record), feature_types=features.types, enable_categorical=True
    )
    return {"probability": float(booster.predict(rows)[0])}


def output_fn(answer: dict[str, float], accept: str) -> str:
    return json.dumps(answer)
