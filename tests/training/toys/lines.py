"""A user's own workload in one module: predicts a number from two others and a word."""

from training.workloads import Column
from training.workloads.simple import Simple


class Workload(Simple):
    columns = {
        "x": Column("number"),
        "size": Column("number", dtype="uint8"),
        "colour": Column("category"),
        "note": Column("text", required=False),
        "y": Column("number"),
    }
    fitted_baselines = ("constant",)
    group = "colour"

    def model(self):
        from torch import nn

        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def inputs(self, batch):
        import torch

        colour = (batch["colour"] % 7).float()
        return (torch.stack((batch["x"], batch["size"].float(), colour), dim=1),)

    def loss(self, outputs, batch):
        return (outputs[:, 0] - batch["y"]).square().sum()
