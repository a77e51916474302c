"""Tell prose from code, line by line: the columns, the network's inputs, and the loss.

The shard step imports this module without torch; so torch is imported where it is used.
"""

from training.workloads import Column
from training.workloads.simple import Simple

LENGTH = 64  # bytes of a line that the network uses


class Workload(Simple):
    """See training/workloads/simple.py for everything that can be overridden."""

    columns = {"line": Column("text"), "prose": Column("number", dtype="uint8")}
    better = {"loss": "lower", "accuracy": "higher"}
    fitted_baselines = ("constant",)

    def model(self):
        from my_project.network import Network

        return Network()

    def inputs(self, batch):
        """Return each line's bytes, cut or padded to LENGTH, as the network's only input."""
        import torch

        starts, ends = batch["line_offsets"][:-1, None], batch["line_offsets"][1:, None]
        places = starts + torch.arange(LENGTH, device=starts.device)
        known = torch.nn.functional.pad(batch["line"], (0, 1)).long()
        return (known[places.clamp(max=len(known) - 1)].where(places < ends, 0),)

    def loss(self, outputs, batch):
        from torch.nn.functional import binary_cross_entropy_with_logits

        labels = batch["prose"].to(outputs.dtype)
        return binary_cross_entropy_with_logits(outputs, labels, reduction="sum")

    def measure(self, outputs, batch):
        from torch.nn.functional import binary_cross_entropy_with_logits

        labels = batch["prose"].to(outputs.dtype)
        return {
            "loss": binary_cross_entropy_with_logits(outputs, labels, reduction="none"),
            "accuracy": (outputs > 0) == (labels > 0),
        }
