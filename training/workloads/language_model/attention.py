"""Which token sees which: none that comes after it and, with documents, none of another one.

Where every token sees all before it in the window, ``is_causal`` says it all. Else there is a mask,
made once for all blocks and without waiting for the device: on GPUs a block mask, with which
FlexAttention (Dong et al. 2024) skips what nothing sees and holds no score matrix; elsewhere (and
in float64, for which FlexAttention has no kernel) a boolean matrix.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Union

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Mask = Union[Tensor, "BlockMask", None]
"""None: causal, over queries and keys of the same tokens."""


def mask(
    queries: Tensor, keys: Tensor, documents: Tensor | None, *, wide: bool = False
) -> "Tensor | BlockMask":
    """What the queries of some tokens see of the keys of some, which may lie in any order.

    Args:
        queries, keys: places of the tokens in the sample, (q,) and (k,).
        documents: which document each token of the sample belongs to, (n, t); None for one.
        wide: whether attention is computed in float64.
    """
    seen = rule(queries, keys, documents)
    samples, device = None if documents is None else len(documents), queries.device
    if device.type == "cuda" and not wide:
        make = _flexible("create_block_mask", device.type)
        return make(seen, samples, None, len(queries), len(keys), device=device)
    sizes = (samples or 1, 1, len(queries), len(keys))
    axes = [torch.arange(size, device=device) for size in sizes]
    shapes = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    return seen(*(axis.view(shape) for axis, shape in zip(axes, shapes, strict=True)))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """(n, heads, t, width); k and v may have fewer heads, each shared by neighbours."""
    if not (mask is None or isinstance(mask, Tensor)):
        # Autocast does not reach FlexAttention in every torch; v has the type of the products.
        flex = _flexible("flex_attention", q.device.type)
        return flex(q.type_as(v), k.type_as(v), v, block_mask=mask, enable_gqa=True)
    shared = q.shape[1] // k.shape[1]
    if shared > 1:
        k, v = (part.repeat_interleave(shared, dim=1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)


def rule(queries: Tensor, keys: Tensor, documents: Tensor | None) -> Callable[..., Tensor]:
    """``mask`` as a function of sample, head, number of the query and of the key."""

    def seen(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        before = keys[key] <= queries[query]
        if documents is None:
            return before
        same = documents[sample, queries[query]] == documents[sample, keys[key]]
        return before & same

    return seen


@cache
def _flexible(name: str, device: str) -> Callable[..., Any]:
    """torch's function; compiled for GPUs, since only so it makes no matrix of all scores."""
    from torch.nn.attention import flex_attention

    function = getattr(flex_attention, name)
    return torch.compile(function) if device == "cuda" else function
