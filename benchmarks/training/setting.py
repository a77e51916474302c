"""Setting of every contender: model, batches, learning rates; one JSON file for all of them.

Scripts import this, and their start-up is measured: nothing here imports Trainyard.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

MODEL = Path(__file__).parents[2] / "training/workloads/language_model/model.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Model, data and optimizer of a training. A step takes some 1.1 s of one core by default.

    Matrix products are four fifths of it. Two layers keep a round short; with more of them the
    products and the rest would grow alike.
    """

    layers: int = 2
    heads: int = 8
    dim: int = 512
    context_length: int = 256
    vocabulary: int = 257
    """The model is ``training.workloads.language_model``'s."""
    steps: int = 6
    log_interval: int = 2
    """Steps between two losses; the first step's is given too."""
    global_batch: int = 8
    """Samples of ``context_length`` tokens; every rank takes its share in one micro-batch."""
    rates: tuple[float, ...] = ()
    """Learning rate of each step."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    """Weight decay; none for parameters with one dimension."""
    grad_clip: float = 1.0
    seed: int = 0
    precision: str = "float32"
    """Or bfloat16: by autocast."""
    batches: str = ""
    """A .npy of uint16, shape (steps, global batch, context length + 1): in Trainyard's order."""
    shape: dict[str, Any] = field(default_factory=dict)
    """What the model's module asks of its configuration; filled in before a contender starts."""
    output: str = ""
    """Folder for what the contender writes."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    def is_logged(self, step: int) -> bool:
        """Return whether the loss of the step, counted from 1, is printed."""
        return step == 1 or step % self.log_interval == 0

    def model(self) -> "torch.nn.Module":
        """Return the module, from its file alone, with the same initial weights in each process."""
        # All begin with the weights of our loop.
        from training.weights.initial.build_model import build_on_meta, materialize_model

        spec = importlib.util.spec_from_file_location("language_model_of_trainyard", MODEL)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        shape = SimpleNamespace(**self.shape)
        model = build_on_meta(lambda: module.Transformer(shape, self.vocabulary), self.seed)
        return materialize_model(model)

    def optimizer(self, model: "torch.nn.Module") -> "torch.optim.Optimizer":
        import torch

        wide = [p for p in model.parameters() if p.dim() >= 2]
        narrow = [p for p in model.parameters() if p.dim() < 2]
        groups = [
            {"params": wide, "weight_decay": self.weight_decay},
            {"params": narrow, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.rates[0], betas=self.betas, fused=True)

    def make_schedule(
        self, optimizer: "torch.optim.Optimizer"
    ) -> "torch.optim.lr_scheduler.LambdaLR":
        """Return the learning rate of each step, for a framework that asks for a schedule."""
        import torch

        last = self.steps - 1
        rate = lambda step: self.rates[min(step, last)] / self.rates[0]  # noqa: E731
        return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    def iter_share(self, rank: int, world: int) -> Iterator["torch.Tensor"]:
        """Yield this rank's tokens of each step, int64 of shape (share, context length + 1)."""
        import torch

        every = np.load(self.batches, mmap_mode="r")
        size = self.global_batch // world
        for batch in every[: self.steps, rank * size : (rank + 1) * size]:
            yield torch.from_numpy(batch.astype(np.int64))


def read_setting() -> Setting:
    """Return the setting whose path is this process's first argument."""
    given = json.loads(Path(sys.argv[1]).read_text())
    return Setting(**given | {"rates": tuple(given["rates"]), "betas": tuple(given["betas"])})


def print_mean_loss(step: int, loss: "torch.Tensor") -> None:
    """Print the mean of the ranks' losses."""
    import torch.distributed as dist

    loss = loss.detach().clone()
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"step={step} loss={loss.item():.6g}", flush=True)
