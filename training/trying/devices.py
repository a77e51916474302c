"""Rules of a device of its own: nothing is left on the CPU, and the host waits for nothing.

For the first, model and batch are put on the meta device, which every torch has and which refuses
nothing that a GPU does not refuse but what needs values. A tensor that the workload makes without a
device is on the CPU, and the first operation that brings both together names its line.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training.host_reads import HostReads
from training.trying.contract import Fault, NotChecked, place, raised_at, rule, short, told
from training.trying.trial import Trial, losses

ALLOWED = ("copy", "aten.index.", "aten._pack_padded_sequence", "aten.index_put")
"""Operations that take CPU tensors beside those of a GPU: copies, indices, lengths."""

VALUES = ("item()", "meta tensors", "no data", "nonzero", "data-independent")
"""What torch says where an operation needs values, which the meta device has not."""


class _MixedDevices(RuntimeError):
    pass


class _OneDevice(TorchDispatchMode):
    """Refuses operations between the meta device and the CPU; one number is allowed, as on GPUs."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, Tensor)]
        strangers = [t for t in tensors if t.device.type != "meta" and t.dim()]
        if strangers and len(strangers) < len(tensors) and not str(func).startswith(ALLOWED):
            if any(tensor.is_meta for tensor in tensors) and "copy" not in str(func):
                raise _MixedDevices(f"a {strangers[0].dtype} tensor on the CPU")
        return func(*args, **(kwargs or {}))


@rule("device", "inputs, model, loss and units stay on the batch's device")
def anywhere(trial: Trial) -> Iterator[Fault]:
    model = trial.model().to("meta")
    batch = {name: tensor.to("meta") for name, tensor in trial.batch().items()}
    try:
        with _OneDevice():
            trial.one.units(batch)
            _, loss = losses(trial.one, model, batch)
    except _MixedDevices as error:
        yield Fault(
            f"{error} meets those of the model's device",
            raised_at(error),
            "make it on the batch's device: torch.zeros(…, device=x.device); a constant of the "
            "model is a buffer: self.register_buffer(…)",
        )
    except (RuntimeError, NotImplementedError, TypeError) as error:
        if any(words in str(error) for words in VALUES):
            raise NotChecked(f"{raised_at(error)} looks at values; it is not seen here") from None
        yield Fault(told(error), raised_at(error), "keep to tensors on the batch's device")
    else:
        if not loss.is_meta:
            yield Fault(
                f"the loss is on {loss.device}",
                place(trial.one, "loss"),
                "leave out cpu() and torch.tensor(…)",
            )


@rule("host reads", "a step asks the device for no number")
def unread(trial: Trial) -> Iterator[Fault]:
    """On a GPU each read is a wait for all that was asked before; see ``training.host_reads``."""
    model, batch = trial.model(), trial.batch()
    reads = HostReads()
    reads.put([*model.parameters(), *model.buffers(), *batch.values()])
    with reads:
        trial.one.units(batch)
        _, loss = losses(trial.one, model, batch)
        loss.backward()
    for read in dict.fromkeys(reads.found):
        yield Fault(
            f"a step reads off the device ({read.what}), and the host waits for it",
            short(read.where),
            "stay on the device: torch.where(mask, x, 0) for x[mask] and for a branch on a tensor, "
            "sizes from the settings; check and print outside of the step",
        )
