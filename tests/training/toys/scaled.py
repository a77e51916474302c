"""A user's own workload with weights that have no dimensions: a temperature, as CLIP has one, and
one that only samples with a number above 0.9 use.
"""

from training.workloads import Column
from training.workloads.simple import Simple


class Workload(Simple):
    columns = {"x": Column("number"), "y": Column("number")}

    def model(self):
        import torch
        from torch import nn

        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
                self.temperature = nn.Parameter(torch.tensor(1.5))
                self.rare = nn.Parameter(torch.tensor(0.5))

            def forward(self, x):
                y = self.layers(x) * self.temperature.exp()
                if bool((x > 0.9).any()):
                    y = torch.where(x > 0.9, y * self.rare, y)
                return y

        return Scaled()

    def inputs(self, batch):
        return (batch["x"][:, None],)

    def loss(self, outputs, batch):
        return (outputs[:, 0] - batch["y"]).square().sum()
