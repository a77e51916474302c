"""A rank's file of a checkpoint, byte for byte, in memory that another process reads.

A save copies the tensors into it and goes on; the writing process reads it from there. The memory
is anonymous (``memfd_create``): it needs no space in /dev/shm, of which containers have little, and
is freed with the last process that has it, however that ends.

On CUDA it is page-locked, and the copies are queued on a separate stream, behind the work that
computes the tensors; the training's next work on the device waits for them, the process does not.
No machine with a GPU was available: that part is written from CUDA's and torch's documentation, and
has not run.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from training.checkpoint.tensor_table import WIDTHS, Part, file_header
from training.initial.initial_values import local_part
from trainyard.common.errors import TrainingError

DTYPES = {
    torch.bool: "BOOL",
    **{torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32"},
    **{torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.float32: "F32", torch.float64: "F64"},
    **{torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"},
}
"""torch's type → safetensors' name for it."""


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor; any other tensor as it is."""
    return getattr(tensor, "_local_tensor", tensor)


def part_of(name: str, tensor: Tensor) -> Part:
    """Return where this rank's part lies in the whole tensor.

    torch's own ``__create_chunk_list__`` is not asked: of 257 rows that two tensor-parallel ranks
    share, and of those 129 that four ranks of FSDP2 share, torch 2.13 says 31 where a rank has 33.

    Raises:
        TrainingError: safetensors lacks its type, or its layout is unknown.
    """
    if tensor.dtype not in DTYPES:
        raise TrainingError(f"{name}: safetensors has no type {tensor.dtype}; keep it in another")
    try:
        ranges = local_part(tensor)
    except TrainingError as error:
        raise TrainingError(f"{name}: {error}") from None
    offsets = tuple(along.start for along in ranges)
    sizes = tuple(along.stop - along.start for along in ranges)
    if local(tensor).numel() != math.prod(sizes):
        raise TrainingError(
            f"{name}: this rank has {list(local(tensor).shape)} of it, expected {list(sizes)}; "
            "take an image with torch 2.8 or newer"
        )
    return Part(DTYPES[tensor.dtype], tuple(tensor.shape), offsets, sizes)


class Image:
    """A rank's checkpoint file in memory.

    Attributes:
        descriptor: file descriptor of the memory, for the writing process.
        size: bytes of the file.
    """

    def __init__(self, parts: Mapping[str, Part], device: torch.device) -> None:
        """Allocate the file; ``parts``: name → the part of that tensor that this rank writes."""
        # Wide elements first, as safetensors has them: so each tensor is aligned.
        order = sorted(parts, key=lambda name: (-WIDTHS[parts[name].dtype], name))
        beginning, places = file_header(parts, order)
        self.size = len(beginning) + sum(parts[name].bytes for name in order)
        self.descriptor = _anonymous(self.size)
        self._memory = mmap.mmap(self.descriptor, self.size)
        self._memory[: len(beginning)] = beginning
        flat = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._views = {}
        for name in order:
            begin = len(beginning) + places[name]
            region = flat[begin : begin + parts[name].bytes]
            dtype = torch_type(parts[name].dtype)
            self._views[name] = region.view(dtype).view(parts[name].sizes)
        self._locked_memory = flat if device.type == "cuda" else None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._locked_memory is not None:
            _lock(self._locked_memory)

    @torch.no_grad()
    def copy(self, state: Mapping[str, Tensor]) -> Callable[[], None]:
        """Copy the tensors in; the returned function waits until they have arrived."""
        sources = {name: local(state[name]).detach() for name in self._views}
        if self._stream is None:
            for name, view in self._views.items():
                view.copy_(sources[name])
            return lambda: None
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for name, view in self._views.items():
                view.copy_(sources[name], non_blocking=True)
            copy_event = torch.cuda.Event()
            copy_event.record()
        # The optimizer's next step, which writes into the sources, is queued behind the copies.
        torch.cuda.current_stream().wait_event(copy_event)

        def wait() -> None:
            copy_event.synchronize()
            sources.clear()  # kept until now: a temporary one's memory must not be reused

        return wait

    def close(self) -> None:
        """Free the memory here; the writing process may still hold it."""
        self._views = {}
        if self._locked_memory is not None:
            torch.cuda.cudart().cudaHostUnregister(self._locked_memory.data_ptr())
        self._locked_memory = None
        os.close(self.descriptor)


def torch_type(name: str) -> torch.dtype:
    """Return torch's type for safetensors' name ``name``."""
    return next(dtype for dtype, dtype_name in DTYPES.items() if dtype_name == name)


def _anonymous(size: int) -> int:
    """Return a descriptor of ``size`` bytes of memory, or of a file if the system has no memfd."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("checkpoint")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, max(size, 1))
    return descriptor


def _lock(memory: Tensor) -> None:
    """Page-lock memory that a GPU copies into, like torch's ``pin_shared_mem``."""
    status = int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))
    if status:
        raise TrainingError(
            f"cudaHostRegister of {memory.nbytes} bytes for checkpoints failed with {status}: the "
            "limit of locked memory (ulimit -l) or the machine's memory is too small"
        )
