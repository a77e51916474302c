"""Muon: a matrix's momentum made orthogonal is its update (Jordan et al. 2024; Liu et al. 2025).

As in "Muon is Scalable for LLM Training" (arXiv 2502.16982, section 2): Nesterov's momentum, five
Newton–Schulz iterations, the result times 0.2·√max(rows, columns), so that its elements are as
large as AdamW's, whose learning rate and weight decay serve; ``torch.optim.Muon`` is the same with
``adjust_lr_fn="match_rms_adamw"``. AdamW updates what is no hidden matrix.

Ours because the iterations need whole matrices, and ranks hold parts. The momentum stays as the
weights lie. Each rank makes whole matrices of its own, one at a time: the ranks that share the
weights send it their parts of the update, and get their parts of the result. So nothing is computed
twice, and a rank sends twice what it holds, in the type of the iterations.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.initial.parts import Part, held_at, local, whole
from trainyard.common.errors import TrainingError

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic, steep at 0 (Jordan et al. 2024, kellerjordan.github.io/posts/muon, "Tuning the
coefficients"): singular values from 0 to 1 go to 0.7 … 1.2, and not quite to 1."""

ITERATIONS = 5
EPSILON = 1e-7
"""Smallest norm that a matrix is divided by; both as ``torch.optim.Muon`` has them."""

RMS = 0.2
"""Root mean square of an update's elements at rate 1: AdamW's (arXiv 2502.16982, section 2.2)."""


Update = tuple[Tensor, dict]
"""A weight that is updated, and its group of the optimizer's."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What Muon updates, and who computes it."""

    matrices: Collection[Tensor]
    """The hidden matrices among the weights; see ``hidden``."""

    device: torch.device
    """Where the iterations run; weights may lie elsewhere (``cpu_offload``)."""

    dtype: torch.dtype | None = None
    """Of the iterations and of what is sent for them; None: each weight's own."""

    groups: Mapping[tuple[str, ...], dist.ProcessGroup] = field(default_factory=dict)
    """Names of the mesh's dimensions that a weight lies on → its ranks, in the mesh's order; () for
    those that have the same whole weights. What has no group, each rank computes by itself."""


def hidden(blocks: Iterable[nn.Module], tables: Collection[nn.Module] = ()) -> list[nn.Parameter]:
    """The trained weights inside the blocks with two dimensions, or four (a convolution's).

    A convolution's is one matrix of its output channels, as in Jordan's. Not those of ``tables``,
    nor of an ``nn.Embedding``: a row of theirs is updated where its token is seen. What has three
    dimensions may be a stack of matrices, and stays AdamW's, as that of a module that says
    ``stacked``.
    """
    found: dict[nn.Parameter, None] = {}
    for module in (inside for block in blocks for inside in block.modules()):
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) or module in tables:
            continue
        if getattr(module, "stacked", False):
            continue
        for weight in module.parameters(recurse=False):
            if weight.requires_grad and weight.dim() in (2, 4):
                found[weight] = None
    return [*found]


def orthogonal(matrix: Tensor) -> Tensor:
    """U·S·Vᵀ → U·S′·Vᵀ with singular values near 1, by Newton–Schulz, in the matrix's own type.

    Args:
        matrix: with two dimensions.
    """
    a, b, c = COEFFICIENTS
    found = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    found = found / found.norm().clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = found @ found.T
        found = torch.addmm(found, torch.addmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return found if matrix.shape[0] <= matrix.shape[1] else found.T


class Muon(torch.optim.Optimizer):
    """Muon for the groups of parameters that say ``orthogonal``, fused AdamW for the others.

    The ranks of ``Spread.groups`` have to call ``step`` together, with gradients of the same
    weights. As with a fused optimizer, ``found_inf`` leaves a step out on the device.
    """

    def __init__(
        self,
        params: Iterable[dict],
        lr: float,
        betas: tuple[float, float],
        momentum: float,
        spread: Spread,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "momentum": momentum})
        self._spread = spread
        self._matrices = [group for group in self.param_groups if group["orthogonal"]]
        others = [group for group in self.param_groups if not group["orthogonal"]]
        # The groups are the same objects, so a rate that is set here is set there.
        self._others = torch.optim.AdamW(others or [{"params": []}], lr, betas, fused=True)
        self._others.state = self.state

    @torch.no_grad()
    def step(self) -> None:
        """One step of all weights that have a gradient.

        Raises:
            TrainingError: a matrix lies on ranks that ``Spread.groups`` does not have.
        """
        found_inf = getattr(self, "found_inf", None)
        self._others.found_inf = found_inf
        self._others.step()
        taken = 1.0 if found_inf is None else 1 - found_inf.double()
        updates = [(w, g) for g in self._matrices for w in g["params"] if w.grad is not None]
        for (whole_weight, group), made in self._orthogonalised(updates, found_inf):
            weight = local(whole_weight)
            weight.mul_(_as(1 - taken * (group["lr"] * group["weight_decay"]), weight))
            scale = RMS * math.sqrt(max(_sides(whole_weight.shape)))
            weight.sub_(made.to(weight) * _as(taken * (group["lr"] * scale), weight))

    def _follow(self, update: Update, found_inf: Tensor | None) -> Tensor:
        """This rank's part of the update, before it is made orthogonal; the momentum goes on."""
        weight, decay = update[0], update[1]["momentum"]
        state, gradient = self.state[weight], local(weight.grad)
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        share: float | Tensor = 1 - decay
        if found_inf is not None:
            share = _as((1 - found_inf.double()) * share, gradient)
            gradient = gradient.masked_fill(found_inf > 0, 0)
        return gradient.lerp(local(state["momentum_buffer"]).lerp_(gradient, share), decay)

    def _orthogonalised(
        self, updates: Iterable[Update], found_inf: Tensor | None
    ) -> Iterator[tuple[Update, Tensor]]:
        """Each update, and this rank's part of its orthogonal matrix."""
        alike: dict[tuple, list[Update]] = {}
        for one in updates:
            kind = self._spread.dtype or one[0].dtype
            alike.setdefault((_axes(one[0]), kind), []).append(one)
        for (axes, kind), every in alike.items():
            # Matrices that take as long are made at the same time.
            every.sort(key=lambda one: -_work(one[0].shape))
            group = self._spread.groups.get(axes)
            if group is None and hasattr(every[0][0], "placements"):
                raise TrainingError(
                    f"optimizer muon: a weight lies on the mesh {axes}, expected one of "
                    f"{[*self._spread.groups]}; let Workload.tensor_parallel lay weights on the "
                    "mesh that it is given, or set optimizer to adamw"
                )
            ranks = 1 if group is None else dist.get_world_size(group)
            for first in range(0, len(every), ranks):
                some = every[first : first + ranks]
                parts = [self._follow(one, found_inf) for one in some]
                if not some[0][1]["lr"]:  # the momentum alone is made (``moments``)
                    continue
                parts = [part.to(self._spread.device, kind) for part in parts]
                if ranks == 1:
                    made = [_made(part) for part in parts]
                else:
                    made = _exchanged([weight for weight, _ in some], parts, group)
                yield from zip(some, made, strict=True)


def _exchanged(
    weights: Sequence[Tensor], parts: Sequence[Tensor], group: dist.ProcessGroup
) -> list[Tensor]:
    """The orthogonal matrices' parts on this rank, of no more matrices than ranks.

    Rank n of the group gets matrix n whole, each part of it from the one rank that has it beside
    n's own copies of the rest, and sends the result's parts to all.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    layouts = [_layout(weight, ranks) for weight in weights]
    empty = parts[0].new_empty(0)
    given = [
        part.flatten() if layout.copies[rank] == layout.copies[owner] else empty
        for owner, (part, layout) in enumerate(zip(parts, layouts, strict=True))
    ]
    given += [empty] * (ranks - len(given))
    mine = layouts[rank] if rank < len(layouts) else None
    giving = mine.giving(rank) if mine else []
    if any(layout.cut for layout in layouts):
        awaited = [mine.sizes[n] if mine and n in giving else 0 for n in range(ranks)]
        given = _all_to_all(given, awaited, group)
    if mine is None:
        given = [empty] * ranks
    else:
        matrix = parts[0].new_empty(weights[rank].shape)
        for n in giving:
            matrix[mine.parts[n]] = given[n].view_as(matrix[mine.parts[n]])
        matrix = _made(matrix)
        given = [matrix[part].flatten() for part in mine.parts]
    awaited = [layout.sizes[rank] for layout in layouts] + [0] * (ranks - len(layouts))
    made = _all_to_all(given, awaited, group)
    return [flat.view_as(part) for flat, part in zip(made, parts, strict=False)]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a weight lies on the ranks of its group."""

    parts: Sequence[Part]
    """What each rank holds; some may hold the same."""

    sizes: Sequence[int]
    """Elements of it."""

    copies: Sequence[tuple[int, ...]]
    """Of each rank: which copy of the weight its part belongs to."""

    cut: bool = False
    """Whether some rank lacks a part."""

    def giving(self, owner: int) -> list[int]:
        """The ranks that hold the parts of the same copy as ``owner``."""
        return [n for n, copy in enumerate(self.copies) if copy == self.copies[owner]]


def _layout(weight: Tensor, ranks: int) -> _Layout:
    mesh = getattr(weight, "device_mesh", None)
    if mesh is None:
        every = whole(weight.shape)
        return _Layout([every] * ranks, [weight.numel()] * ranks, [(n,) for n in range(ranks)])
    return _laid_out(weight.shape, weight.placements, tuple(mesh.mesh.shape))


@cache
def _laid_out(shape: torch.Size, placements: tuple, sizes: tuple[int, ...]) -> _Layout:
    """Of a DTensor on a mesh of these sizes."""
    coordinates = [*itertools.product(*map(range, sizes))]
    parts = [held_at(shape, placements, sizes, one) for one in coordinates]
    replicas = [n for n, one in enumerate(placements) if one.is_replicate()]
    return _Layout(
        parts=parts,
        sizes=[math.prod(one.stop - one.start for one in part) for part in parts],
        copies=[tuple(one[n] for n in replicas) for one in coordinates],
        cut=any(part != whole(shape) for part in parts),
    )


def _all_to_all(
    given: Sequence[Tensor], awaited: Sequence[int], group: dist.ProcessGroup
) -> list[Tensor]:
    """What each rank has for this one, flat: ``awaited`` elements of each."""
    sent = torch.cat([*given])
    found, width = sent.new_empty(sum(awaited)), sent.element_size()
    # As bytes: gloo has no types of 16 bits, and nobody computes with them.
    dist.all_to_all_single(
        found.view(torch.uint8),
        sent.view(torch.uint8),
        [count * width for count in awaited],
        [one.numel() * width for one in given],
        group=group,
    )
    return [*found.split([*awaited])]


def _made(matrix: Tensor) -> Tensor:
    return orthogonal(matrix.flatten(1)).reshape(matrix.shape)


def _sides(shape: torch.Size) -> tuple[int, int]:
    """Rows and columns; of a convolution its outputs, and all that makes one of them."""
    return shape[0], math.prod(shape[1:])


def _work(shape: torch.Size) -> int:
    """To what the iterations' operations are proportional."""
    return math.prod(_sides(shape)) * min(_sides(shape))


def _axes(weight: Tensor) -> tuple[str, ...]:
    mesh = getattr(weight, "device_mesh", None)
    return () if mesh is None else tuple(mesh.mesh_dim_names or ("unnamed",))


def _as(number: float | Tensor, like: Tensor) -> float | Tensor:
    return number.to(like.device, like.dtype) if isinstance(number, Tensor) else number
