"""Make a step's random draws and statistics independent of which rank takes which micro-batch.

torch's random numbers (``nn.Dropout``) are seeded again for each micro-batch, from (seed, position
of its first sample, pipeline stage). So the number of data-parallel ranks does not matter, but the
size of a micro-batch does: for such a model it is part of the training run's identity
(``select_batch_settings``). The masks of ``training.dropout`` depend only on the samples.

Buffers (BatchNorm's statistics) belong to a step as weights do: each micro-batch starts from the
buffers after the previous step. At the end of the step a floating-point buffer becomes the mean of
its values after each micro-batch of the global batch, and any other buffer its value after the
first micro-batch. A moving average is linear, so this equals one update with the mean of the
statistics of all micro-batches.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.config import BY_BATCH, TrainConfig
from training.dropout import Dropout, assign_name_hashes, derive_sample_keys
from training.workloads import Workload
from trainyard.common.errors import TrainingError


def select_batch_settings(
    config: TrainConfig, workload: Workload, model: nn.Module
) -> dict[str, Any]:
    """Return settings that affect the weights only if the model depends on micro-batches, or {}."""
    # Float8's scales depend on the micro-batch, too.
    if not depends_on_micro_batch(workload, model) and config.float8 == "none":
        return {}
    settings = config.model_dump(mode="json", include=BY_BATCH)
    # Omitted if equal, so that older training runs keep their identity.
    if config.stages != config.pipeline_parallel:
        settings["pipeline_stages"] = config.stages
    return settings


def depends_on_micro_batch(workload: Workload, model: nn.Module) -> bool:
    """Return whether the trained weights depend on the micro-batch; a workload may declare it."""
    return getattr(workload, "by_batch", False) or any(
        map(_module_depends_on_batch, model.modules())
    )


def _module_depends_on_batch(module: nn.Module) -> bool:
    match module:
        case Dropout():
            return False
        case nn.modules.dropout._DropoutNd():
            return module.p > 0
        case nn.modules.batchnorm._BatchNorm():
            return module.training
        case nn.RNNBase() | nn.MultiheadAttention():
            return module.dropout > 0
    return isinstance(module, nn.RReLU)


class MicroBatches:
    """Seed each micro-batch of one rank; call ``begin`` before each forward pass in training.

    Args:
        size: samples in a micro-batch.
        stage: pipeline stage; each draws different numbers.
        draws: whether the model may draw torch's random numbers.
    """

    def __init__(
        self, model: nn.Module, seed: int, size: int, stage: int = 0, *, draws: bool = True
    ) -> None:
        self._seed, self._size, self._stage = seed, size, stage
        self._needs_check, self._last_seed = not draws, 0
        self._dropouts = assign_name_hashes(model)
        self._buffers = Buffers(model)
        self._first, self._device = 0, torch.device("cpu")

    def begin_step(self, first: int, device: torch.device) -> None:
        """Begin a step; ``first`` is the position of this rank's first sample in the order."""
        self._first, self._device = first, device
        self._buffers.begin_step()

    def begin(self, number: int) -> None:
        """Prepare for the forward pass of this rank's micro-batch ``number``."""
        position = self._first + number * self._size
        # The seed is 64 bits of a hash, different for each micro-batch and stage.
        text = f"{self._seed} {position} {self._stage}"
        self._last_seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
        seed_generators(self._last_seed, self._device)
        if self._dropouts:
            keys = derive_sample_keys(self._seed, position, self._size)
            if self._device.type == "cuda":
                keys = keys.pin_memory()  # so that the host does not wait for the copy
            self._set_sample_keys(keys.to(self._device, non_blocking=True))
        self._buffers.begin()

    def check(self) -> None:
        """Check the draws in the first step; call it before another micro-batch or stage is seeded.

        Raises:
            TrainingError: numbers were drawn that the training's identity does not account for.
        """
        if not self._needs_check:
            return
        states = self._read_random_states()
        # Seeded again, the generators have the state that they would have if the pass had drawn
        # nothing.
        seed_generators(self._last_seed, self._device)
        if not torch.equal(self._read_random_states(), states):
            raise TrainingError(
                "the model draws torch's random numbers in its forward pass, outside of the "
                "modules known to draw them: they depend on micro_batch and on the pipeline's "
                "stages. Use training.dropout.Dropout, whose masks do not; or set by_batch = True "
                "in the workload, so that micro_batch becomes part of the training's identity"
            )

    def end(
        self, groups: Sequence[dist.ProcessGroup], finite: Tensor, *, is_checked: bool = False
    ) -> None:
        """Finish the step after all backward passes.

        Args:
            groups: process groups that together span the data-parallel ranks.
            finite: boolean, 0-dim, on the device; if false, buffers stay unchanged.
            is_checked: whether ``check`` was called after the last micro-batch.
        """
        if not is_checked:
            self.check()
        self._needs_check = False
        if self._dropouts:
            self._set_sample_keys(torch.zeros(0, 2, dtype=torch.int32, device=self._device))
        self._buffers.end(groups, finite)

    def _read_random_states(self) -> Tensor:
        """Return the states of the CPU's and the device's generators, concatenated."""
        on_gpu = self._device.type == "cuda"
        device = [torch.cuda.get_rng_state(self._device)] if on_gpu else []
        return torch.cat([torch.get_rng_state(), *device])

    def _set_sample_keys(self, keys: Tensor) -> None:
        """Set the keys from which the dropout modules draw their masks."""
        for module in self._dropouts:
            module.samples = keys


class StageMicroBatches:
    """The micro-batches of a rank that has several pipeline stages.

    Call ``begin`` before each forward pass of each stage.

    Args:
        by_stage: mapping of each stage to its micro-batches.
    """

    def __init__(self, by_stage: Mapping[int, MicroBatches]) -> None:
        self._by_stage = by_stage
        self._latest: MicroBatches | None = None

    def begin_step(self, first: int, device: torch.device) -> None:
        """Begin a step in all stages; see ``MicroBatches.step``."""
        for micro_batches in self._by_stage.values():
            micro_batches.begin_step(first, device)

    def begin(self, number: int, stage: int) -> None:
        """Prepare for the forward pass of micro-batch ``number`` through ``stage``."""
        if self._latest is not None:
            self._latest.check()
        self._latest = self._by_stage[stage]
        self._latest.begin(number)

    def end(self, groups: Sequence[dist.ProcessGroup], finite: Tensor) -> None:
        """Finish the step in all stages; see ``MicroBatches.end``."""
        if self._latest is not None:
            self._latest.check()
        for micro_batches in self._by_stage.values():
            micro_batches.end(groups, finite, is_checked=True)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators from which a pass on ``device`` draws.

    torch.manual_seed is not used: it seeds the generators of all devices, and without a GPU records
    the stack for each call: 0.6 ms per micro-batch, where the generator's own seed takes 2 µs.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


class Buffers:
    """A model's persistent buffers. The others are not saved, so no training may depend on them."""

    def __init__(self, model: nn.Module) -> None:
        self._locations = [
            (module, name)
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if name not in module._non_persistent_buffers_set
        ]

    def list_tensors(self) -> list[Tensor]:
        """Return the current buffer tensors."""
        return [module.get_buffer(name) for module, name in self._locations]

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Replace the buffers' tensors. Tensors that autograd has kept stay unchanged."""
        for (module, name), tensor in zip(self._locations, tensors, strict=True):
            module._buffers[name] = tensor

    def begin_step(self) -> None:
        """Begin a step: remember the buffers as they are after the previous step."""
        self._originals = self.list_tensors()
        self._start = [tensor.clone() for tensor in self._originals]
        # Sums of floating-point buffers; first values of other buffers.
        self._totals: list[Tensor] = []
        self._count, self._open = 0, False

    def begin(self) -> None:
        """Give the next micro-batch its own copies of the buffers as they were after the
        previous step.
        """
        self._accumulate_buffers()
        self.put([tensor.clone() for tensor in self._start])
        self._open = True

    @torch.no_grad()
    def end(self, groups: Sequence[dist.ProcessGroup], finite: Tensor) -> None:
        """Combine the buffers of all micro-batches of all ranks into the model's own.

        Collective: call it on every rank of ``groups``. If ``finite`` is false, the buffers stay as
        they were.
        """
        if not self._locations:
            return
        self._accumulate_buffers()
        self.put(self._originals)
        # All floating-point buffers are summed in one collective.
        means = [tensor for tensor in self._totals if tensor.is_floating_point()]
        flat = torch.cat([tensor.flatten() for tensor in means]) if means else None
        world = 1
        for group in groups:
            world *= group.size()
            if flat is not None:
                dist.all_reduce(flat, group=group)
        parts = iter(() if flat is None else flat.split([tensor.numel() for tensor in means]))
        for original, total in zip(self._originals, self._totals, strict=True):
            if original.is_floating_point():
                new = (next(parts) / (self._count * world)).view_as(original).to(original.dtype)
            else:
                new = total
                for group in groups:
                    dist.broadcast(new, dist.get_global_rank(group, 0), group=group)
            original.copy_(torch.where(finite, new, original))

    @torch.no_grad()
    def _accumulate_buffers(self) -> None:
        """Add the buffers of the micro-batch that just ended to the sums."""
        if not self._locations or not self._open:
            return
        self._count, self._open = self._count + 1, False
        now = self.list_tensors()
        # Sum in float64, so that the mean of equal numbers is exactly that number.
        if self._count == 1:
            self._totals = [t.double() if t.is_floating_point() else t for t in now]
            return
        for total, tensor in zip(self._totals, now, strict=True):
            if total.is_floating_point():
                total.add_(tensor)


class RecomputeContext:
    """Make a block's recomputation in the backward pass repeat its first forward pass exactly.

    The repeated pass uses the same dropout masks and buffers as the first, although another
    micro-batch may have begun, and it does not change buffers, which the first pass has already
    changed. A buffer that affects a pass's result has to be replaced by the pass, not changed in
    place.
    """

    def __init__(self, block: nn.Module) -> None:
        self._dropouts = [m for m in block.modules() if isinstance(m, Dropout)]
        self._buffers = Buffers(block)

    def create_contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        """Return the contexts of the first pass and of its repetition; call it before the first
        pass.
        """
        return nullcontext(), _Pass(self._dropouts, self._buffers)


class _Pass:
    """Context of a repeated pass; a class, because the context of a generator can be entered
    only once.
    """

    def __init__(self, dropouts: Sequence[Dropout], buffers: Buffers) -> None:
        self._dropouts, self._buffers = dropouts, buffers
        self._samples, self._first_buffers = (
            [module.samples for module in dropouts],
            buffers.list_tensors(),
        )

    def __enter__(self) -> None:
        self._now = [module.samples for module in self._dropouts], self._buffers.list_tensors()
        self._put(self._samples, [tensor.clone() for tensor in self._first_buffers])

    def __exit__(self, *_: object) -> None:
        self._put(*self._now)

    def _put(self, samples: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        for module, tensor in zip(self._dropouts, samples, strict=True):
            module.samples = tensor
        self._buffers.put(buffers)
