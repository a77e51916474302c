"""The training loop: the same for every strategy, workload and number of ranks."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from training.agreed_stop import Stop
from training.checkpoint.checkpoints import Checkpoints
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.loader import Batch, DevicePrefetcher, Loader, Preparation, move_batch
from training.data.mixture import MixtureOrder, collect_inputs, select_inputs
from training.data.sample_order import Order, create_uniform_order, create_windowed_order
from training.defaults.flop_count import count_flops_per_unit
from training.input_shares import Mixture
from training.optimizers import Average, compute_learning_rate
from training.step_numbers import DeviceStepMetrics, Step
from training.strategies import Strategy
from training.watching.clock import Trace
from training.watching.step_progress import Progress, measure_updates
from training.weights.initial.build_model import build_on_meta
from training.workloads import Workload
from trainyard.common.errors import DataError, TrainingError

log = logging.getLogger(__name__)

Report = Callable[[dict[str, float]], None]


def build_fresh_model(config: TrainConfig, workload: Workload) -> nn.Module:
    """Build the model on meta; its initial values, the same on each rank, are set later
    (training.weights.initial).
    """
    torch.use_deterministic_algorithms(config.deterministic)
    return build_on_meta(workload.model, config.seed)


class Loop:
    """Train a workload's model.

    Args:
        report: called on every rank with each metric line.
        keep: called on every rank before a checkpoint is saved.
        traces: folder for the trace of ``config.profile_steps``; None for no trace.
        model: result of ``build_fresh_model``; None to call it here.
        mixture: weights of the data's inputs; None if there are no weights.
    """

    def __init__(
        self,
        config: TrainConfig,
        workload: Workload,
        strategy: Strategy,
        checkpoints: Checkpoints,
        report: Report,
        *,
        keep: Callable[[], None] = lambda: None,
        traces: Path | None = None,
        model: nn.Module | None = None,
        mixture: Mixture | None = None,
    ) -> None:
        self.config, self.workload, self.strategy = config, workload, strategy
        self.checkpoints, self.report, self._keep = checkpoints, report, keep
        self._mixture = mixture
        self._order: Order | None = None
        self.ranks = strategy.ranks
        self.micro_batches = config.count_micro_batches(self.ranks.world)
        self.preparation = Preparation.from_workload(
            workload, seed=config.seed, threads=config.loader_threads
        )
        model = model or build_fresh_model(config, workload)
        # Count on meta, before the strategy splits the model.
        flops = count_flops_per_unit(workload, model)
        self._progress = Progress(config, self.ranks, strategy.clock, flops)
        strategy.prepare(model)
        self.average = Average(strategy.model, config.ema_decay) if config.ema_decay else None
        self.step, self._saved_step = 0, -1
        self._last_validation: tuple[int, float] | None = None
        # Resume only now that the average exists, because a checkpoint contains it, too.
        self._resume()
        self._numbers, self._read = (
            DeviceStepMetrics(self.ranks.device, strategy.data_rank),
            self.step,
        )
        traced_steps = config.profile_steps if traces and self.ranks.rank == 0 else 0
        self._trace = Trace(traces or Path(), config.profile_at, traced_steps)
        self._stop: Stop | None = None

    def request_stop(self, reason: str) -> None:
        """Request that all ranks end after the same step, as SIGTERM does; a request on one rank is
        enough.

        Args:
            reason: who requests the stop, followed by a colon and why.
        """
        if self._stop is not None:
            self._stop.request_stop(reason)

    def train(self, train: Dataset, validation: Dataset) -> None:
        """Train until ``max_steps``; afterwards the strategy's model has the trained weights.

        Raises:
            TrainingError: the loss or the gradient is not finite, or a stop was requested.
        """
        self._progress.begin()
        last, device = self.config.max_steps, self.ranks.device
        with (
            self.checkpoints,
            self._create_loader(train) as loader,
            Stop(self.ranks, self.step) as stop,
        ):
            self._stop = stop
            prefetcher = DevicePrefetcher(loader, self.micro_batches, device)
            while self.step < last and stop.may_begin(self.step + 1):
                with self._trace.record_step(self.step + 1):
                    self._train_step(prefetcher, loader)
                self._finish_step(validation)
            if self.step < last:
                self._save()
                # The checkpoint must be complete before the error says so.
                self.checkpoints.finish()
                # If rank 0 hosts the store (mpirun), it must not end before all ranks know of the
                # save.
                self.ranks.gather(None)
                requester, _, reason = stop.reason.partition(": ")
                raise TrainingError(
                    f"stopped by {requester} after step {self.step}{reason and f': {reason}'}; a "
                    "checkpoint is "
                    "saved, and a job with the same code, settings and data continues from it"
                )
        if self.average is not None:
            self.average.swap()

    def _create_loader(self, train: Dataset) -> Loader:
        """Return a loader that continues after the steps done so far; also set ``self._order``."""
        config, strategy = self.config, self.strategy
        self._order = samples = create_order(config, train, self._mixture)
        return Loader(
            train,
            samples,
            global_batch=config.global_batch,
            micro_batch=config.micro_batch,
            rank=strategy.data_rank,
            world=strategy.data_world,
            position=self.step * config.global_batch,
            device=self.ranks.device,
            preparation=self.preparation,
        )

    def _train_step(self, prefetcher: DevicePrefetcher, loader: Loader) -> None:
        """Run one optimizer step. The host reads its numbers from the device only if they are
        logged.
        """
        strategy, clock = self.strategy, self.strategy.clock
        batches = [strategy.take_local_slice(batch) for batch in prefetcher.take()]
        clock.mark("data")
        units = self._count_units(batches)
        clock.mark("communication")
        strategy.begin(self.step)
        total = strategy.backward(batches, units)
        clock.mark("forward_backward")
        # Clone, because the sum over the ranks is computed in place, and this rank's own loss is
        # logged.
        loss = strategy.sum(total.clone())
        clock.mark("communication")
        norm = strategy.clip()
        scaling = strategy.loss_scale
        finite = self._numbers.add(self.step + 1, loss, units, norm, total, scaling)
        strategy.micro.end(strategy.list_data_groups(), finite)
        if strategy.reads:
            self._sync_step_numbers()
        rate = compute_learning_rate(self.config, self.step)
        strategy.update(rate, finite)
        if self.average is not None:
            self.average.update(self.step, finite)
        clock.mark("optimizer")
        self.step += 1
        self._progress.count_step()
        # Do not fetch after the last step, because nothing would take the batches.
        if self.step < self.config.max_steps:
            prefetcher.fetch()
            clock.mark("data")
        if self.step % self.config.log_interval == 0 or self.step in (1, self.config.max_steps):
            self._report_metrics(rate, loader.stall_seconds)

    def _count_units(self, batches: Sequence[Batch]) -> Tensor:
        """Return the number of units in the global batch (what the loss is averaged over):
        float64, 0-dim, on the device.
        """
        counts = torch.stack([self.workload.units(batch) for batch in batches])
        units = counts.sum().to(self.ranks.device, torch.float64)
        return self.ranks.sum(units if self.strategy.scores else torch.zeros_like(units))

    def _check_numbers(self) -> None:
        """Read the step's numbers; raise on every rank if a shared one is not finite."""
        if self._read != self.step:
            self._sync_step_numbers()

    def _sync_step_numbers(self, *own_numbers: float, measurements: Tensor | None = None) -> Step:
        """Read the last step's numbers from the device; return them, with ``own_numbers`` and
        ``measurements`` of each rank. Collective: call it on every rank.
        """
        numbers = self._numbers.read(self.ranks, own_numbers, measurements)
        numbers.check(self.config.global_batch)
        self._progress.count_units(numbers.units_since)
        self._read = self.step
        return numbers

    def _finish_step(self, validation: Dataset) -> None:
        """Validate, and save a checkpoint, if either is due after this step."""
        config, clock = self.config, self.strategy.clock
        if self.step % config.validation_interval == 0 or self.step == config.max_steps:
            began = time.perf_counter()
            self._check_numbers()
            with self._use_average():
                indices_by_input = select_validation(config, validation, self._mixture)
                loss, of_inputs = self._validate(validation, indices_by_input)
            if not math.isfinite(loss):
                raise TrainingError(
                    f"validation loss is {loss} after step {self.step}; nothing is saved: "
                    "lower learning_rate"
                )
            self._last_validation = self.step, loss
            self.report({"step": self.step, "validation_loss": loss, **of_inputs})
            self._progress.exclude_seconds(time.perf_counter() - began)
        # The time of the validation must not count for the next step.
        clock.skip()
        if self.step % config.checkpoint_interval == 0 or self.step == config.max_steps:
            self._save()
            clock.mark("checkpoint")

    @torch.no_grad()
    def _validate(
        self, validation: Dataset, indices_by_input: Mapping[str, Sequence[int] | np.ndarray]
    ) -> tuple[float, dict[str, float]]:
        """Return the mean loss of these samples over all ranks, and the mean loss of each input.

        Args:
            indices_by_input: indices of the samples, by input.
        """
        strategy = self.strategy
        modes = {module: module.training for module in strategy.model.modules()}
        strategy.model.eval()
        totals = [self._measure_loss(validation, indices) for indices in indices_by_input.values()]
        # Restored one by one: a frozen BatchNorm was in evaluation mode before, too.
        for module, training in modes.items():
            module.training = training
        sums = strategy.sum(torch.stack(totals))
        loss_sum, units = sums.sum(0).tolist()
        if not units:
            raise TrainingError(
                f"{validation.folder}: the samples that are validated hold no unit that counts (no "
                "sample, or padding only?); look at the shards with python -m steps.shard.inspect"
            )
        of_inputs = {
            f"validation_loss.{name}": loss / unit_count
            for name, (loss, unit_count) in zip(indices_by_input, sums.tolist(), strict=True)
            if name and unit_count
        }
        return loss_sum / units, of_inputs

    def _measure_loss(self, data: Dataset, indices: Sequence[int] | np.ndarray) -> Tensor:
        """Return (sum of the losses, units) of this rank's share of these samples.

        The micro-batches are the same for any number of ranks, because a loss may depend on them.
        """
        strategy, size = self.strategy, self.config.micro_batch
        totals = torch.zeros(2, dtype=torch.float64, device=self.ranks.device)
        # Every rank runs the model equally often, because with sharded weights each pass is
        # collective.
        for start in range(0, len(indices), size * strategy.data_world):
            first = start + size * strategy.data_rank
            samples = indices[first : first + size]
            read = data.read(samples if len(samples) else range(1))
            batch = strategy.take_local_slice(
                move_batch(self.preparation.make_batch(read), self.ranks.device)
            )
            loss = strategy.validate(batch)
            if len(samples):
                totals[0] += loss
                totals[1] += self.workload.units(batch)
        return totals

    def _report_metrics(self, rate: float, stall_seconds: float) -> None:
        """Report the metric line of this step. Collective: call it on every rank."""
        updates = measure_updates(self.strategy.optimizer, self.ranks.device)
        numbers = self._sync_step_numbers(*self._progress.measure_own(), measurements=updates)
        line = self._progress.collect_metrics(numbers, rate, stall_seconds, self._order)
        self.report(line | self.checkpoints.collect_metrics(self.step))

    @contextlib.contextmanager
    def _use_average(self) -> Iterator[None]:
        """Context in which the model has the averaged weights, if an average is kept."""
        if self.average is None:
            yield
            return
        self.average.swap()
        try:
            yield
        finally:
            self.average.swap()

    def _collect_state(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint: of the strategy, the average and the loss scale."""
        average = self.average.tensors if self.average is not None else {}
        scaling = self.strategy.loss_scale.tensors if self.strategy.loss_scale else {}
        name = self.strategy.find_saved_name
        return (
            self.strategy.collect_state()
            | {f"average.{name(n)}": t for n, t in average.items()}
            | {f"loss_scale.{n}": t for n, t in scaling.items()}
        )

    def _save(self) -> None:
        """Save a checkpoint of this step, unless that was done already."""
        # The checkpoint of a requested stop may already have been saved by the interval.
        if self.step == self._saved_step:
            return
        # Raises if a number is not finite, because such a state must not be saved.
        self._check_numbers()
        loss = (
            self._last_validation[1]
            if self._last_validation and self._last_validation[0] == self.step
            else None
        )
        self._keep()
        self.checkpoints.save(self.step, self._collect_state(), loss)
        self._saved_step = self.step

    def _resume(self) -> None:
        """Continue from the newest checkpoint, if there is one."""
        step = self.checkpoints.resume(self._collect_state)
        if step is None:
            return
        self.strategy.apply_loaded_state(*([self.average.tensors] if self.average else []))
        self.step, self._saved_step = step, step
        if self.ranks.rank == 0:
            log.info("resumed from the checkpoint of step %d", step)


def create_order(config: TrainConfig, train: Dataset, mixture: Mixture | None = None) -> Order:
    """Return the order that ``config.shuffle`` selects; several inputs are mixed by weight.

    Raises:
        DataError: an input of the mixture has no samples.
    """
    if mixture is not None:
        return _mix_inputs(config, train, mixture)
    if config.shuffle == "windowed":
        sizes = train.manifests.samples
        return create_windowed_order(train.fingerprint, config.seed, sizes, config.window_samples)
    return create_uniform_order(train.fingerprint, config.seed, len(train))


def _mix_inputs(config: TrainConfig, train: Dataset, mixture: Mixture) -> MixtureOrder:
    """Return an order over the inputs; each input's own order is independent of the others.

    The windows of all inputs together are as large as one window of a plain order; an input that is
    not larger than its window is shuffled as a whole.
    """
    sources = select_inputs(collect_inputs(train.manifests), mixture.names, train.folder)
    window = max(1, config.window_samples // len(sources))
    orders = [
        create_windowed_order(source.fingerprint, config.seed, source.sizes, window)
        if config.shuffle == "windowed" and source.samples > window
        else create_uniform_order(source.fingerprint, config.seed, source.samples)
        for source in sources
    ]
    phases = [
        (step * config.global_batch, [shares.get(source.name, 0) for source in sources])
        for step, shares in mixture.phases
    ]
    return MixtureOrder(sources, orders, phases)


def select_validation(
    config: TrainConfig, validation: Dataset, mixture: Mixture | None = None
) -> Mapping[str, Sequence[int] | np.ndarray]:
    """Return a mapping of input to the global indices of its validation samples.

    Without a mixture, the key is "" for all inputs together. With a mixture, equally many samples
    of each input are taken (fewer if it has fewer), whatever the weights, so that training runs
    with other weights can be compared. An input may have no samples in this split.

    Raises:
        DataError: no input of the mixture has samples.
    """
    if mixture is None:
        return {"": range(min(len(validation), config.validation_samples))}
    sources = collect_inputs(validation.manifests)
    max_samples = max(1, config.validation_samples // len(mixture.names))
    indices_by_input = {
        name: sources[name].list_first_indices(max_samples)
        for name in mixture.names
        if name in sources
    }
    if not indices_by_input:
        raise DataError(
            f"{validation.folder}: has samples of {', '.join(sources)}, and of no input of the "
            f"mixture: {', '.join(mixture.names)}; shard the data with data.inputs"
        )
    return indices_by_input
