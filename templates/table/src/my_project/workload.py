"""House prices from a table: the columns, the network's inputs, and the loss.

The shard step imports this module without torch; so torch is imported where it is used.
"""

from training.workloads import Column
from training.workloads.simple import Simple

DISTRICTS = 64  # number of embeddings; a district's hash selects one


class Workload(Simple):
    """See training/workloads/simple.py for everything that can be overridden."""

    columns = {
        "area": Column("number"),
        "rooms": Column("number", dtype="uint8"),
        "district": Column("category"),
        "price": Column("number"),
    }
    better = {"squared_error": "lower", "absolute_error": "lower"}
    fitted_baselines = ("constant",)

    def model(self):
        from my_project.network import Network

        return Network(DISTRICTS)

    def inputs(self, batch):
        import torch

        numbers = torch.stack((batch["area"] / 100, batch["rooms"].float()), dim=1)
        return numbers, batch["district"] % DISTRICTS

    def loss(self, outputs, batch):
        return (outputs - batch["price"] / 100).square().sum()

    def measure(self, outputs, batch):
        error = outputs - batch["price"] / 100
        return {"squared_error": error.square(), "absolute_error": error.abs()}
