"""Asynchronous tensor parallel: a product overlaps with the gathering before it, or the scattering
behind it.

torch's inductor takes both apart, into a piece for each rank, and multiplies one piece while the
next is on its way through memory that the ranks' GPUs share (``micro_pipeline_tp``; Wang et al.
2023, Overlap communication with dependent computation via decomposition). It knows a gathered
tensor that is multiplied, and one product that is reduced and scattered. Three things in a compiled
block look otherwise to it, and ``Ready`` writes them so that it knows them:

- of a single sample, gathering the sequence moves nothing, so it is a view and not a copy;
- the gradient of what several products share (a feed-forward's gate and up; separate queries, keys
  and values) is a sum of products, which is one product of what they multiply side by side;
- a bias is added by the kernel that multiplies, and has to be added behind it.
"""

import logging
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from training.config import TrainConfig
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

aten, sent, fused = torch.ops.aten, torch.ops._c10d_functional, torch.ops.symm_mem
FUSED = (
    fused.fused_all_gather_matmul.default,
    fused.fused_matmul_reduce_scatter.default,
)
LEFT = (
    sent.all_gather_into_tensor.default,
    sent.reduce_scatter_tensor.default,
    sent.all_reduce.default,
)
VIEWS = (aten.reshape.default, aten.view.default)


def check(config: TrainConfig, rank: int, local_rank: int) -> None:
    """Whether this rank's GPU and those that share its products can do it.

    Raises:
        TrainingError: there is no GPU, they are on several machines, or cannot read each other's
            memory.
    """
    count, first = config.tensor_parallel, local_rank - rank % config.tensor_parallel
    refused = ""
    if not torch.cuda.is_available():
        refused = "there is no CUDA device here"
    elif first < 0 or first + count > torch.cuda.device_count():
        refused = (
            f"tensor_parallel {count} joins GPUs of several machines; this one has "
            f"{torch.cuda.device_count()}"
        )
    else:
        other = next(
            (
                one
                for one in range(first, first + count)
                if one != local_rank and not torch.cuda.can_device_access_peer(local_rank, one)
            ),
            None,
        )
        if other is not None:
            refused = f"GPU {local_rank} cannot read GPU {other}'s memory (no NVLink)"
    if refused:
        raise TrainingError(
            "async_tensor_parallel exchanges through memory that the GPUs of a product share, and "
            f"{refused}: set it to false"
        )


@cache
def options(group: dist.ProcessGroup) -> dict[str, Any]:
    """``torch.compile``'s, for blocks that the ranks of ``group`` share; one for all blocks, so
    that they share what is compiled."""
    from torch.distributed._symmetric_memory import enable_symm_mem_for_group

    with warnings.catch_warnings():  # 2.13 says that nobody need call it; its pass looks for it
        warnings.simplefilter("ignore", FutureWarning)
        enable_symm_mem_for_group(group.group_name)
    return {
        "_micro_pipeline_tp": True,
        "post_grad_custom_pre_pass": Ready(),
        "post_grad_custom_post_pass": Told(),
    }


class Pass(CustomGraphPass):
    """One of ours over a block's forward or backward pass."""

    def uuid(self) -> Any:
        """For inductor's cache of compiled graphs."""
        return get_hash_for_files((__file__,))


class Ready(Pass):
    """Before torch's own pass: gatherings and sums as it knows them."""

    def __call__(self, graph: Graph) -> None:
        for node in list(graph.nodes):
            if node.target is sent.all_gather_into_tensor.default:
                _flatten(node)
            elif node.target is sent.reduce_scatter_tensor.default:
                _join(node)
            elif node.target is aten.addmm.default and not node.kwargs:
                _add_behind(node)


class Told(Pass):
    """After it: the log says how many of a graph's collectives are fused with their products."""

    def __call__(self, graph: Graph) -> None:
        done, left = counted(graph)
        if done + left:
            log.log(
                logging.WARNING if left else logging.INFO,
                "async_tensor_parallel: of %d collectives in a compiled block %d are one with "
                "their products",
                done + left,
                done,
            )


def counted(graph: Graph) -> tuple[int, int]:
    """(collectives that are one with their products, other collectives)."""
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    return sum(t in FUSED for t in targets), sum(t in LEFT for t in targets)


def _flatten(gathering: Node) -> None:
    """Gather rows where parts of one sample, (1, t / ranks, dim), are gathered along t."""
    (arrived,) = gathering.users
    shard, whole = gathering.args[0], _value(arrived)
    if whole.dim() < 3 or _value(shard).shape[0] != 1 or not (shape := _shape(arrived)):
        return
    graph, rows = gathering.graph, [-1, shape[-1]]
    with graph.inserting_before(gathering):
        flat = _call(graph, aten.reshape.default, shard, rows)
    gathering.replace_input_with(shard, flat)
    for node in (gathering, arrived):
        node.meta["val"] = _value(node).reshape(rows)
    with graph.inserting_after(arrived):
        back = graph.call_function(aten.reshape.default, (arrived, shape))
    back.meta["val"] = whole
    arrived.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
    for view in list(_views(back)):
        if _value(view).shape == _value(arrived).shape:
            view.replace_all_uses_with(arrived)


def _views(node: Node) -> Iterator[Node]:
    """Of the same rows in other shapes, however many views away."""
    for user in list(node.users):
        if user.target in VIEWS:
            yield user
            yield from _views(user)


def _add_behind(product: Node) -> None:
    """Add a bias to the (batch, t, width) that a product's rows are taken for."""
    graph, (bias, left, right) = product.graph, product.args
    shapes = [_shape(user) if user.target in VIEWS else [] for user in product.users]
    if not all(len(shape) > 2 for shape in shapes):
        return
    with graph.inserting_before(product):
        bare = _call(graph, aten.mm.default, left, right)
    for view, shape in zip(list(product.users), shapes, strict=True):
        with graph.inserting_before(view):
            whole = _call(graph, aten.reshape.default, bare, shape)
            view.replace_all_uses_with(_call(graph, aten.add.Tensor, whole, bias))
    graph.eliminate_dead_code()


def _join(scattering: Node) -> None:
    """Scatter one product in the place of a sum of several."""
    source = _scattered(scattering)
    products = _summed(source) if source.target is aten.add.Tensor else []
    if not products or not (shape := _shape(source)):
        return
    graph, lasts = source.graph, [_product(one).args for one in products]
    firsts = [left.args[0] for left, _ in lasts]  # (batch, t, width) each
    with graph.inserting_before(source):
        left = _call(graph, aten.cat.default, firsts, -1)
        flat = _call(graph, aten.reshape.default, left, [-1, _value(left).shape[-1]])
        right = _call(graph, aten.cat.default, [right for _, right in lasts], 0)
        product = _call(graph, aten.mm.default, flat, right)
        whole = _call(graph, aten.reshape.default, product, shape)
    source.replace_all_uses_with(whole)
    graph.eliminate_dead_code()


def _scattered(scattering: Node) -> Node:
    """What is cut along t, and its parts laid one behind the other, before it is scattered."""
    source = scattering.args[0]
    if source.target is aten.cat.default and source.args[0][0].target is not aten.slice.Tensor:
        cut = source.args[0][0].args[0]
        return cut.args[0] if isinstance(cut, Node) and cut.args else source
    return source


def _summed(node: Node) -> list[Node]:
    """The products that a sum is of; none where anything else is in it."""
    if node.target is aten.add.Tensor and not node.kwargs and len(node.users) == 1:
        parts = [_summed(one) if isinstance(one, Node) else [] for one in node.args]
        return [one for part in parts for one in part] if all(parts) else []
    return [node] if _product(node) is not None else []


def _product(node: Node) -> Node | None:
    """The matrix product behind a view of it that nothing else takes, of a view of its rows."""
    if node.target not in VIEWS or len(node.users) > 1:
        return None
    product = node.args[0]
    if product.target is not aten.mm.default or len(product.users) > 1:
        return None
    return product if product.args[0].target in VIEWS else None


def _call(graph: Graph, target: Any, *given: Any) -> Node:
    """A new node, whose value's shape and type are known."""
    made = graph.call_function(target, given)
    values = torch.fx.node.map_arg(given, _value)
    made.meta["val"] = target(*values)
    return made


def _shape(node: Node) -> list[int]:
    """For a view of as many elements, whatever the number of samples; empty where more than that
    is known only as it runs."""
    rest = list(_value(node).shape[1:])
    return [-1, *rest] if all(isinstance(size, int) for size in rest) else []


def _value(node: Node) -> Tensor:
    return node.meta["val"]
