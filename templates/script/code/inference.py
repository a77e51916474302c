"""Answers requests such as {"x": 0.1, "y": -0.2}, for AWS's PyTorch inference toolkit."""

import json
from pathlib import Path

import torch
from model import Network


def model_fn(model_dir):
    model = Network()
    model.load_state_dict(torch.load(Path(model_dir) / "weights.pt", weights_only=True))
    return model.eval()


def input_fn(body, content_type):
    request = json.loads(body)
    return torch.tensor([[request["x"], request["y"]]])


def predict_fn(features, model):
    with torch.no_grad():
        return {"probability": model(features).sigmoid().item()}


def output_fn(answer, accept):
    return json.dumps(answer)
