"""The training loop: the same for every strategy, workload and number of ranks."""

import contextlib
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from training import devices
from training.checkpoint import Checkpoints
from training.clock import PARTS
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.mixture import MixtureOrder
from training.data.preparation import Preparation
from training.initial.fill import emptied
from training.mixture import Mixture
from training.optimizers import Average, learning_rate
from training.profiler import Trace
from training.sampling import order, validated
from training.strategies import Strategy
from training.workloads import Workload
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

Report = Callable[[dict[str, float]], None]


def fresh(config: TrainConfig, workload: Workload) -> nn.Module:
    """The model with its initial weights, the same on every rank."""
    torch.use_deterministic_algorithms(config.deterministic)
    torch.manual_seed(config.seed)
    return workload.model()


class Loop:
    """Trains a workload's model.

    Args:
        report: called on every rank with each metric line.
        keep: called on every rank before a checkpoint is saved.
        traces: folder for the trace of ``config.profile_steps``; None for no trace.
        model: what ``fresh`` gave; None to ask it here.
        mixture: the weights of the inputs that the data come from; None for no weights.
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
        self._mixture, self._order = mixture, None
        self.ranks = strategy.ranks
        self.micro_batches = config.micro_batches(self.ranks.world)
        self.preparation = Preparation.of(workload, seed=config.seed, threads=config.loader_threads)
        model = model or fresh(config, workload)
        self._flops, self._peak = workload.flops(model), devices.peak(self.ranks.device)
        strategy.prepare(emptied(model))
        self.average = Average(strategy.model, config.ema_decay) if config.ema_decay else None
        self.step, self._saved = 0, -1
        self._validated: tuple[int, float] | None = None
        self._resume()
        self._began, self._samples, self._units = 0.0, 0, 0.0  # since the last line
        self._stalled = 0.0  # seconds, of all steps before the last line
        traced = config.profile_steps if traces and self.ranks.rank == 0 else 0
        self._trace = Trace(traces or Path(), config.profile_at, traced)

    def train(self, train: Dataset, validation: Dataset) -> None:
        """Run to ``max_steps``; the strategy's model has the trained weights then.

        Raises:
            TrainingError: the loss or the gradient is not finite, or SIGTERM asked to stop.
        """
        self._began = time.perf_counter()
        self.strategy.clock.skip()
        with self.checkpoints, self._loader(train) as loader, _noticing_sigterm() as stop:
            while self.step < self.config.max_steps:
                with self._trace.around(self.step + 1):
                    asked = self._train_step(loader, stop_asked=stop())
                self._after_step(validation)
                if asked and self.step < self.config.max_steps:
                    self._save()
                    self.checkpoints.finish()  # saved before it is said
                    raise TrainingError(
                        f"stopped by SIGTERM after step {self.step}; a checkpoint is saved, and a "
                        "job with the same code, settings and data goes on from it"
                    )
        if self.average is not None:
            self.average.swap()

    def _loader(self, train: Dataset) -> Loader:
        config, strategy = self.config, self.strategy
        self._order = order(config, train, self._mixture)
        return Loader(
            train,
            self._order,
            global_batch=config.global_batch,
            micro_batch=config.micro_batch,
            rank=strategy.data_rank,
            world=strategy.data_world,
            position=self.step * config.global_batch,
            device=self.ranks.device,
            preparation=self.preparation,
        )

    def _train_step(self, loader: Loader, *, stop_asked: bool) -> bool:
        """One optimizer step; True when any rank was asked to stop."""
        strategy, clock = self.strategy, self.strategy.clock
        batches = [self._on_device(next(loader)) for _ in range(self.micro_batches)]
        clock.mark("data")
        counts = torch.stack([self.workload.units(batch) for batch in batches])
        units, asked = self._agree(float(counts.sum()), stop_asked)
        clock.mark("communication")
        strategy.begin(self.step)
        on_device = torch.tensor(units, dtype=torch.float64, device=self.ranks.device)
        total = strategy.backward(batches, on_device)
        strategy.micro.end(strategy.data_groups())
        mine = float(total)
        clock.mark("forward_backward")
        loss = float(strategy.sum(total.clone()))
        clock.mark("communication")
        self._check(loss, "loss", mine)
        norm = float(strategy.clip())
        self._check(norm, "gradient norm", norm)
        rate = learning_rate(self.config, self.step)
        finite = torch.ones((), dtype=torch.bool, device=self.ranks.device)
        strategy.update(rate, finite)
        if self.average is not None:
            self.average.update(self.step, finite)
        clock.mark("optimizer")
        self.step += 1
        self._samples += self.config.global_batch
        self._units += units
        if self.step % self.config.log_interval == 0 or self.step in (1, self.config.max_steps):
            self._log(loss / units, rate, norm, loader.stalled)
        return asked

    def _agree(self, units: float, stop_asked: bool) -> tuple[float, bool]:
        """Units of the global batch, and whether any rank was asked to stop; in one collective."""
        strategy = self.strategy
        values = torch.zeros(2, dtype=torch.float64, device=self.ranks.device)
        values[0] = units if strategy.scores else 0.0
        values[1] = stop_asked
        units, asked = self.ranks.sum(values).tolist()
        if units == 0:
            raise TrainingError(
                f"step {self.step + 1}: the {self.config.global_batch} samples of the global batch "
                "hold no unit that counts (padding only?); look at the shards with "
                "python -m steps.shard.inspect"
            )
        return units, bool(asked)

    def _on_device(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        device = self.ranks.device
        placed = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        return self.strategy.part(placed)

    def _check(self, value: float, what: str, mine: float) -> None:
        """Stop every rank when a number that they share is not finite; nothing is saved."""
        if math.isfinite(value):
            return
        numbers = enumerate(self.ranks.gather(mine))
        bad = ", ".join(str(rank) for rank, number in numbers if not math.isfinite(number))
        first = self.step * self.config.global_batch
        raise TrainingError(
            f"{what} is {value} at step {self.step + 1} on rank {bad or '(the sum)'}, in the "
            f"samples at positions {first} to {first + self.config.global_batch - 1} of the order; "
            "nothing is saved: lower learning_rate, or look at those samples"
        )

    def _after_step(self, validation: Dataset) -> None:
        config, clock = self.config, self.strategy.clock
        if self.step % config.validation_interval == 0 or self.step == config.max_steps:
            began = time.perf_counter()
            with self._averaged():
                loss, of_inputs = self._validate(validation)
            if not math.isfinite(loss):
                raise TrainingError(
                    f"validation loss is {loss} after step {self.step}; nothing is saved: "
                    "lower learning_rate"
                )
            self._validated = self.step, loss
            self.report({"step": self.step, "validation_loss": loss, **of_inputs})
            self._began += time.perf_counter() - began  # not training time
        clock.skip()
        if self.step % config.checkpoint_interval == 0 or self.step == config.max_steps:
            self._save()
            clock.mark("checkpoint")

    @torch.no_grad()
    def _validate(self, validation: Dataset) -> tuple[float, dict[str, float]]:
        """Mean loss over what is looked at, shared by the ranks; and that of each input."""
        strategy = self.strategy
        looked_at = validated(self.config, validation, self._mixture)
        modes = {module: module.training for module in strategy.model.modules()}
        strategy.model.eval()
        totals = [self._loss_of(validation, indices) for indices in looked_at.values()]
        for module, training in modes.items():  # a frozen BatchNorm was in eval before, too
            module.training = training
        sums = strategy.sum(torch.stack(totals))
        loss_sum, units = sums.sum(0).tolist()
        of_inputs = {
            f"validation_loss.{name}": one / counted
            for name, (one, counted) in zip(looked_at, sums.tolist(), strict=True)
            if name and counted
        }
        return loss_sum / units, of_inputs

    def _loss_of(self, data: Dataset, indices: Sequence[int] | np.ndarray) -> Tensor:
        """(sum of the losses, units) of this rank's share of these samples."""
        strategy, config = self.strategy, self.config
        totals = torch.zeros(2, dtype=torch.float64, device=self.ranks.device)
        mine = indices[strategy.data_rank :: strategy.data_world]
        # Every rank runs the model equally often: with sharded weights they do it together.
        for start in range(0, -(-len(indices) // strategy.data_world), config.micro_batch):
            samples = mine[start : start + config.micro_batch]
            read = data.read(samples if len(samples) else range(1))
            batch = self._on_device(self.preparation.batch(read))
            loss = strategy.validate(batch)
            if len(samples):
                totals[0] += loss
                totals[1] += self.workload.units(batch)
        return totals

    def _log(self, loss: float, rate: float, norm: float, stalled: float) -> None:
        now = time.perf_counter()
        elapsed, world = now - self._began, self.ranks.world
        units = self._units / elapsed
        steps = self._samples / self.config.global_batch
        seconds, memory = self._gathered()
        metrics = {
            "step": self.step,
            "loss": loss,
            "learning_rate": rate,
            "grad_norm": norm,
            "samples_per_second": self._samples / elapsed,
            "units_per_second": units,
            "units_per_second_per_rank": units / world,
            "step_seconds": elapsed / steps,
            **{f"{part}_seconds": value / steps for part, value in seconds.items()},
            "data_stall": (stalled - self._stalled) / elapsed,
            "memory_mb": memory,
            **self._seen(),
        }
        if self._peak:
            metrics["mfu"] = devices.utilisation(units, self._flops, world, self._peak)
        self.report(metrics)
        self._began, self._samples, self._units, self._stalled = now, 0, 0.0, stalled

    def _seen(self) -> dict[str, float]:
        """Samples of each input of a mixture that were taken so far, and how many epochs it is."""
        if not isinstance(self._order, MixtureOrder):
            return {}
        counts = self._order.seen(self.step * self.config.global_batch).tolist()
        found: dict[str, float] = {}
        for one, count in zip(self._order.inputs, counts, strict=True):
            found |= {f"samples.{one.name}": count, f"epochs.{one.name}": count / one.samples}
        return found

    def _gathered(self) -> tuple[dict[str, float], float]:
        """(seconds of each part since the last line, mean over the ranks; the largest memory)."""
        ranks = self.ranks
        mine = [*self.strategy.clock.read().values(), devices.peak_memory(ranks.device)]
        table = torch.zeros(ranks.world, len(mine), dtype=torch.float64, device=ranks.device)
        table[ranks.rank] = torch.tensor(mine, dtype=torch.float64)
        *seconds, memory = ranks.sum(table).T.tolist()
        means = {part: sum(one) / ranks.world for part, one in zip(PARTS, seconds, strict=True)}
        return means, max(memory)

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """Inside, the model has the averaged weights, if an average is kept."""
        if self.average is None:
            yield
            return
        self.average.swap()
        try:
            yield
        finally:
            self.average.swap()

    def _state(self) -> dict[str, Tensor]:
        average = self.average.tensors if self.average is not None else {}
        name = self.strategy.saved_name
        return self.strategy.state() | {f"average.{name(n)}": t for n, t in average.items()}

    def _save(self) -> None:
        if self.step == self._saved:
            return
        loss = self._validated[1] if self._validated and self._validated[0] == self.step else None
        self._keep()
        self.checkpoints.save(self.step, self._state(), loss)
        self._saved = self.step

    def _resume(self) -> None:
        step = self.checkpoints.resume(self._state)
        if step is None:
            return
        self.strategy.loaded()
        self.step, self._saved = step, step
        if self.ranks.rank == 0:
            log.info("resumed from the checkpoint of step %d", step)


@contextlib.contextmanager
def _noticing_sigterm() -> Iterator[Callable[[], bool]]:
    """SIGTERM inside the block is remembered, not obeyed: the loop ends at a step's boundary.

    AWS's drivers do not pass SIGTERM on to the ranks (sagemaker-training-toolkit#125 #173), so
    it is a courtesy to whoever does; what a lost node costs is bounded by checkpoint_interval.
    """
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGTERM, before)
