"""Every call of an operator of torch, as what this rank does of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

FLOAT8 = "torchao.float8."
"""Where tensors are from that are two: numbers of 8 bits, and their scales."""


class EachCall(TorchDispatchMode):
    """Inside, ``called`` is told of each operator's call; of one on DTensors when it comes as calls
    on this rank's parts, and of one on numbers in float8 as calls on these and their scales."""

    def __torch_dispatch__(
        self,
        operator: Callable,
        types: Sequence[type],
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(kind is DTensor or kind.__module__.startswith(FLOAT8) for kind in types):
            return NotImplemented  # comes again, part by part
        made = operator(*args, **(kwargs or {}))
        self.called(operator, args, kwargs or {}, made)
        return made

    def called(self, operator: Any, args: tuple, kwargs: Mapping[str, Any], made: Any) -> None:
        """``operator`` has made ``made`` of its arguments."""
        raise NotImplementedError
