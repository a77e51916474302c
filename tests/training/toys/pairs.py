"""A user's own workload whose loss is over the pairs of a micro-batch (InfoNCE), and says so."""

from training.workloads import Column
from training.workloads.simple import Simple


class Workload(Simple):
    columns = {"x": Column("number"), "y": Column("number")}
    by_batch = True

    def model(self):
        from torch import nn

        return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))

    def inputs(self, batch):
        import torch

        return (torch.stack((batch["x"], batch["y"]), dim=1),)

    def loss(self, outputs, batch):
        import torch

        own = torch.arange(len(outputs))
        return torch.nn.functional.cross_entropy(outputs @ outputs.T, own, reduction="sum")
