"""See config.py. Every number is predicted from its place and the length of its list."""

from torch import nn
from torch.nn import functional as F
from toys.ragged import workload
from toys.ragged.packing import NUMBERS, PLACES

from training.dropout import Dropout

DIM, BLOCKS = 16, 2


class Block(nn.Module):
    def __init__(self, config) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)
        self.norm = nn.BatchNorm1d(DIM) if config.norm else nn.Identity()
        kind = Dropout if config.kind == "ours" else nn.Dropout
        self.dropout = kind(config.dropout) if config.kind != "functional" else nn.Identity()
        self.p = config.dropout if config.kind == "functional" else 0.0

    def forward(self, x, *, scale):
        """X and the result: (n, places, dim)."""
        y = self.norm(x.flatten(0, 1)).view_as(x)
        y = self.dropout(self.down(F.gelu(self.up(y))))
        if self.p:
            y = F.dropout(y, self.p, self.training)
        return x + scale * y


class Model(nn.Module):
    def __init__(self, config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUMBERS, DIM)
        self.places = nn.Embedding(PLACES, DIM)
        self.blocks = nn.ModuleDict({str(n): Block(config) for n in range(BLOCKS)})
        self.head = nn.Linear(DIM, NUMBERS, bias=False)
        self.first = self.last = True
        if config.unused:
            self.spare = nn.Linear(DIM, DIM)
        if config.tied:
            self.head.weight = self.embedding.weight
        frozen = {"embedding": ["embedding"], "body": ["embedding", "places", "blocks.0"]}
        for name in frozen.get(config.frozen, [""] if config.frozen == "all" else []):
            self.get_submodule(name).requires_grad_(False)
        if config.norm == "frozen batch":
            for block in self.blocks.values():
                block.norm.eval()

    def forward(self, x):
        """Map (n,) to (n, places, numbers)."""
        if self.first:
            x = self.places.weight + self.embedding(x)[:, None]
        for block in self.blocks.values():
            x = block(x, scale=0.5)
        return self.head(x) if self.last else x


class Workload(workload.Workload):
    def __init__(self, packing):
        super().__init__(packing)
        self.by_batch = self.config.said

    def model(self):
        return Model(self.config)

    def flops(self, model):
        return 6.0 * sum(parameter.numel() for parameter in model.parameters())

    def blocks(self, model):
        return list(model.blocks.values())

    def tensor_parallel(self, model, mesh):
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        plan = {"head": ColwiseParallel(output_layouts=Replicate())}
        if self.config.splits:
            plan["embedding"] = RowwiseParallel(input_layouts=Replicate())
        for block in model.blocks:
            plan[f"blocks.{block}.up"] = ColwiseParallel()
            plan[f"blocks.{block}.down"] = RowwiseParallel()
        parallelize_module(model, mesh, plan)

    def stage(self, model, index, count):
        model.first, model.last = index == 0, index == count - 1
        for number, name in enumerate(list(model.blocks)):
            if number * count // BLOCKS != index:
                del model.blocks[name]
        if not model.first:
            del model.embedding, model.places
        if not model.last:
            del model.head
            model.spare = None
        return model
