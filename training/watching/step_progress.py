"""Statistics of the steps since the last metric line."""

import logging
import re
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from math import gcd, isfinite
from pathlib import Path
from statistics import median, median_low

import torch
from torch import Tensor

from training.config import TrainConfig
from training.data.mixture import MixtureOrder
from training.data.sample_order import Order
from training.optimizers import Lamb
from training.step_numbers import Step
from training.strategies.ranks import Ranks
from training.watching.clock import PARTS, Clock
from training.watching.rules.stalled_rank import LINES, RATIO, RECENT_LINES
from training.weights.initial.initial_values import to_local_tensor

# A step takes as long as its slowest rank, so its time does not show which rank that is;
# the time before a rank waits for others does. Ranks are compared with those of the same
# pipeline stage, which do the same work. Which parts of a step are a rank's own is described in
# ``training.watching.clock``: its data always, its forward and backward pass where the ranks
# meet after it alone (ddp, smddp). Under fsdp, tensor, context and pipeline parallelism they
# meet in each block, all passes take as long as the slowest one's, and a slow device is not
# identified here; a slow loader or host is.


OWN_PARTS = ("data", "forward_backward", "optimizer")
"""Parts of a step that are a rank's own work, see ``training.watching.clock``. All ranks have met
before clipping, so little of the optimizer's part is waiting; not every step saves a checkpoint."""

ADVICE = {
    "data": "its loader is late: look at that machine's disk, network and cores, and at "
    "train.loop.loader_threads",
    "forward_backward": "its device or host is slow: look there at nvidia-smi -q -d "
    "PERFORMANCE,TEMPERATURE, and at other processes; use another instance if that persists",
    "optimizer": "its host or device is slow: look there at other processes, and at cores and "
    "memory where weights are offloaded (cpu_offload)",
}
"""Slow part → advice."""

Table = Sequence[Sequence[float]]
"""Each rank's seconds in each of ``PARTS``, over the steps of a metric line."""


def compute_own_seconds(table: Table) -> list[float]:
    """Return the seconds of each rank's own work."""
    return [sum(_select_own(row)) for row in table]


def compute_ratios(table: Table, stages: int = 1) -> list[float]:
    """Return each rank's own work divided by the median of the ranks of its pipeline stage.

    For an even number the median is the lower of the two in the middle: so of two ranks the slower
    one is compared with the other, and half of the ranks can be slow.

    Args:
        stages: number of pipeline stages; the ranks of one are consecutive
            (``training.strategies.mesh``).
    """
    own_times = compute_own_seconds(table)
    middles = _compute_medians(own_times, stages)
    return [
        own_time / middle if middle else 1.0
        for own_time, middle in zip(own_times, middles, strict=True)
    ]


class Stragglers:
    """Remembers the last metric lines, and names a rank once it is persistently slow."""

    def __init__(self, stages: int = 1) -> None:
        self._stages, self._named_ranks = stages, set[int]()
        self._slow: deque[set[int]] = deque(maxlen=RECENT_LINES)

    def add(self, table: Table) -> list[int]:
        """Add a line; return the ranks that are now persistently slow. A rank is named again only
        after ``RECENT_LINES`` lines in which it was not slow.
        """
        rank_ratios = compute_ratios(table, self._stages)
        self._slow.append({rank for rank, ratio in enumerate(rank_ratios) if ratio >= RATIO})
        recent_ranks = set().union(*self._slow)
        late = {rank for rank in recent_ranks if sum(rank in line for line in self._slow) >= LINES}
        new = sorted(late - self._named_ranks)
        self._named_ranks = (self._named_ranks | late) & recent_ranks
        return new


def format_straggler_line(table: Table, rank: int, host: str, steps: int, stages: int = 1) -> str:
    """Return the log line that compares a rank with its stage's median, and names its slow part.

    Args:
        steps: number of steps in the metric line that names it.
    """
    own_parts = list(zip(*map(_select_own, table), strict=True))
    more = [column[rank] - _compute_medians(column, stages)[rank] for column in own_parts]
    own_times = compute_own_seconds(table)
    late = own_times[rank] - _compute_medians(own_times, stages)[rank]
    part = OWN_PARTS[more.index(max(more))]
    return (
        f"rank {rank} on {host} is slower than the others in {LINES} of the last "
        f"{RECENT_LINES} metric lines: its own work takes "
        f"{compute_ratios(table, stages)[rank]:.2f} times "
        f"the median's, and they wait {late / steps:.3g} s a step for it, most of all in its "
        f"{part}: {ADVICE[part]}"
    )


def _select_own(row: Sequence[float]) -> list[float]:
    return [row[PARTS.index(part)] for part in OWN_PARTS]


def _compute_medians(values: Sequence[float], stages: int) -> list[float]:
    """Return for each rank the median of its stage; see ``compute_ratios``."""
    size, medians = len(values) // stages, list[float]()
    for first in range(0, len(values), size):
        medians += [median_low(values[first : first + size])] * size
    return medians


log = logging.getLogger(__name__)

RANKS = 64
"""Largest number of ranks, the first ones, whose own seconds are in a line. The slowest of all is
in the ``straggler_ratio``, and in the log by name."""


class Progress:
    """Counts steps, samples and units, and builds the metric line.

    Args:
        flops: operations per unit, forward and backward, of the whole model.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, clock: Clock, flops: float) -> None:
        self._config, self._ranks, self._clock = config, ranks, clock
        self._flops, self._peak = flops, find_device_peak(ranks.device)
        self._began, self._steps, self._units = 0.0, 0, 0.0
        self._earlier_stall = 0.0  # seconds in all steps before the last line
        self._stragglers = Stragglers(config.pipeline_parallel)
        self._hosts: list[str] = []

    def begin(self) -> None:
        """Prepare for the first step; every rank takes part."""
        self._hosts = self._ranks.gather(socket.gethostname())
        self._began = time.perf_counter()
        self._clock.skip()

    def exclude_seconds(self, seconds: float) -> None:
        """Exclude ``seconds`` in which nothing was trained."""
        self._began += seconds

    def count_step(self) -> None:
        """Count one more step."""
        self._steps += 1

    def count_units(self, units: float) -> None:
        """Add ``units`` to the number of units since the last metric line."""
        self._units += units

    def measure_own(self) -> list[float]:
        """Return what a rank sends to the others: its seconds of each part, and its memory."""
        return [*self._clock.read().values(), read_peak_memory(self._ranks.device)]

    def collect_metrics(
        self, numbers: Step, rate: float, stall_seconds: float, order: Order | None
    ) -> dict[str, float]:
        """Return the metrics since the last line, from what all ranks sent, and restart the counts.

        Args:
            numbers: each rank sent ``measure_own`` and ``measure_updates``.
            stall_seconds: seconds that this rank has waited for the loader since the beginning.
        """
        now, world = time.perf_counter(), self._ranks.world
        duration, steps = now - self._began, self._steps
        units, samples = self._units / duration, steps * self._config.global_batch
        *seconds, memory = zip(*(row[:-1] for row in numbers.by_rank), strict=True)
        metrics = {
            "step": numbers.number,
            "loss": numbers.loss / numbers.units,
            "learning_rate": rate,
            **self._compute_gradient_metrics(numbers),
            "samples_per_second": samples / duration,
            "units_per_second": units,
            "units_per_second_per_rank": units / world,
            "step_seconds": duration / steps,
            **{f"{p}_seconds": sum(s) / world / steps for p, s in zip(PARTS, seconds, strict=True)},
            **self._compute_straggler_metrics(numbers.by_rank, steps),
            "data_stall": (stall_seconds - self._earlier_stall) / duration,
            "memory_mb": max(memory),
            **_count_samples(order, numbers.number * self._config.global_batch),
        }
        if self._peak:
            metrics["mfu"] = compute_utilisation(units, self._flops, world, self._peak)
        self._began, self._steps, self._units, self._earlier_stall = now, 0, 0.0, stall_seconds
        return metrics

    def _compute_gradient_metrics(self, numbers: Step) -> dict[str, float]:
        """Return the gradient's norm and the updates that it caused (none if the step was
        skipped); with float16 also the loss scale and the number of steps skipped so far.
        """
        ratios = [row[-1] for row in numbers.by_rank]
        counts = {"grad_norm": numbers.norm, **build_update_metrics(ratios)}
        scale_metrics = {"loss_scale": int(numbers.scale), "skipped_steps": numbers.skipped_steps}
        return ({} if numbers.left_out else counts) | (scale_metrics if numbers.scale else {})

    def _compute_straggler_metrics(self, table: Table, steps: int) -> dict[str, float]:
        """Return how slow the slowest rank is, if several do the same work, and the seconds of each
        rank's own work in a step; a persistently slow rank is logged.
        """
        stages = self._config.pipeline_parallel
        # Each rank is a stage of its own, so there is no other rank to compare it with.
        if self._ranks.world == stages:
            return {}
        for rank in self._stragglers.add(table):
            if self._ranks.rank == 0:
                log.warning(
                    "%s", format_straggler_line(table, rank, self._hosts[rank], steps, stages)
                )
        own_times, rank_ratios = compute_own_seconds(table)[:RANKS], compute_ratios(table, stages)
        rank_seconds = {
            f"own_seconds.rank{rank}": seconds / steps for rank, seconds in enumerate(own_times)
        }
        worst = max(rank_ratios)
        return {
            "straggler_ratio": worst,
            "straggler_rank": rank_ratios.index(worst),
            **rank_seconds,
        }


def _count_samples(order: Order | None, position: int) -> dict[str, float]:
    """Return the number of samples and of epochs taken so far from each input of a mixture."""
    if not isinstance(order, MixtureOrder):
        return {}
    counts: dict[str, float] = {}
    for source, count in zip(order.inputs, order.count_samples(position).tolist(), strict=True):
        counts |= {f"samples.{source.name}": count, f"epochs.{source.name}": count / source.samples}
    return counts


PEAKS: tuple[tuple[str, float], ...] = (
    (r"\bGB200\b", 2500e12),
    (r"\bB[23]00\b", 2250e12),
    (r"\bH200\b", 989e12),
    (r"\bH100 PCIe\b", 756e12),
    (r"\bH100 NVL\b", 835e12),
    (r"\bH100\b", 989e12),  # SXM: "NVIDIA H100 80GB HBM3"
    (r"\bA100\b", 312e12),
    (r"\bA10G\b", 70e12),
    (r"\bL40S\b", 362e12),
    (r"\bL4\b", 121e12),
    (r"\bV100-SXM", 125e12),  # float16: the GPU has no bfloat16
    (r"\bV100-PCIE", 112e12),  # float16
    (r"\bT4\b", 65e12),  # float16
    (r"\bRTX PRO 6000\b", 500e12),
    (r"\bRTX PRO 4500\b", 203e12),
)
"""Device name → dense matrix operations per second in 16 bits, from NVIDIA's data sheets.

Where a sheet gives the figure "with sparsity" (H100, H200, L4, L40S, B200, B300), it is half of
that; of the RTX PRO, whose sheets do not say, too. ``trainyard/foresight/gpus.csv`` has the same
peaks, but is not shipped into the container; the tests check that both agree.
"""


def find_device_peak(device: torch.device) -> float | None:
    """Return the peak floating-point operations per second; None for a device not in the table.

    The peak of bfloat16 (float16 on older devices), whatever the training's precision: what a
    training in float32 leaves unused counts as unused.
    """
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return find_peak_by_name(name)


def find_peak_by_name(name: str) -> float | None:
    """Return the peak for a device's name as given by its driver."""
    return next((value for pattern, value in PEAKS if re.search(pattern, name)), None)


def compute_utilisation(
    units_per_second: float, flops: float, world: int, peak_flops: float
) -> float:
    """Return the model FLOPs utilisation: units per second of all ranks × operations per unit,
    forward and backward, of the whole model / (ranks × a device's peak). Recomputed operations
    count once (Chowdhery et al. 2022, PaLM, appendix B).
    """
    return units_per_second * flops / (world * peak_flops)


def read_peak_memory(device: torch.device) -> float:
    """Return this process's peak memory in megabytes: tensors on a CUDA device, else resident
    memory.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    # Not getrusage: after an exec it still holds the peak of the process that forked.
    status = Path("/proc/self/status").read_text()
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(kilobytes) * 1024 / 1e6


# How much the weights change: measured at logged steps only.
#
# It is computed from AdamW's state after a step, so nothing is copied beforehand and the step
# itself is unchanged. It stays on the device, and goes to the host with the line's other numbers.
# Each rank measures the parts of the weights that it holds; of large ones only some elements.

SAMPLED_ELEMENTS = 2**14
"""Approximate number of sampled elements of a matrix. Root mean squares of so many agree with those
of all to a few hundredths, while a rule's thresholds are powers of ten; all elements took as long
as four of AdamW's steps."""

RUN_LENGTH = 16
"""Sampled elements that are adjacent: a processor's cache line. So they come from a thousand rows;
whole rows would be four of a large vocabulary's embedding, where those of rare words have no
gradient for hundreds of steps."""


@torch.no_grad()
def measure_updates(optimizer: torch.optim.Optimizer, device: torch.device) -> Tensor:
    """Return (1,) float64 on the device: ‖update‖ / ‖weights‖, the median over the weight matrices.

    The update is the last one, without weight decay. NaN if this rank holds no part of
    a matrix that AdamW or LAMB updates.
    """
    ratios = [
        ratio for group in optimizer.param_groups for ratio in _iter_update_ratios(optimizer, group)
    ]
    if not ratios:
        return torch.full((1,), torch.nan, dtype=torch.float64, device=device)
    # One by one: with cpu_offload some weights are the host's, and others the device's.
    return torch.stack([ratio.to(device) for ratio in ratios]).nanmedian()[None]


def _iter_update_ratios(optimizer: torch.optim.Optimizer, group: dict) -> Iterator[Tensor]:
    """Yield ‖update‖ / ‖weights‖ of each weight matrix; NaN if its weights are 0."""
    beta1, beta2 = group.get("betas", (0.0, 0.0))
    for weight in group["params"]:
        state = optimizer.state.get(weight, {})
        if weight.dim() < 2 or "exp_avg_sq" not in state:
            continue
        samples = [
            _sample_tensor(tensor) for tensor in (weight, state["exp_avg"], state["exp_avg_sq"])
        ]
        if not samples[0].numel():
            continue
        number = torch.as_tensor(state["step"], dtype=torch.float64, device=samples[0].device)
        # Before the first step the corrections below would divide by 0.
        number = number.clamp(min=1)
        roots = samples[2].sqrt()
        correction = (1 - beta2**number).sqrt()
        # AdamW adds eps to the corrected root: with both multiplied by the correction it is this.
        small = correction.to(roots.dtype)
        torch.div(samples[1], roots.add_(small * group.get("eps", 1e-6)), out=roots)
        step = torch.linalg.vector_norm(roots).double() * correction / (1 - beta1**number)
        size = torch.linalg.vector_norm(samples[0]).double()
        if isinstance(optimizer, Lamb):  # LAMB scales its step to the weights
            step = torch.where(step > 0, size, step)
        yield torch.where(size > 0, group["lr"] * step / size, torch.nan)


def _sample_tensor(tensor: Tensor) -> Tensor:
    """Return evenly spaced pieces of this rank's part; copied only if it is not contiguous."""
    part = to_local_tensor(tensor)
    flat, stride = part.reshape(-1), -(-part.numel() // SAMPLED_ELEMENTS)
    if stride <= 1:
        return flat
    columns = part[0].numel()
    while gcd(stride, columns) > 1:  # otherwise they would be the same columns in each row
        stride += 1
    return flat[: len(flat) // RUN_LENGTH * RUN_LENGTH].view(-1, RUN_LENGTH)[::stride]


def build_update_metrics(ratios: Sequence[float]) -> dict[str, float]:
    """Return ``update_ratio``, the median of the ranks' finite ratios; empty if there are none."""
    finite = [ratio for ratio in ratios if isfinite(ratio)]
    return {"update_ratio": median(finite)} if finite else {}
