"""The training loop: the same for every strategy, workload and number of ranks."""

import contextlib
import hashlib
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from errors import TrainingError
from training.checkpoint import Checkpoints
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.order import Order, uniform, windowed
from training.strategies import Strategy
from training.workloads import Workload

log = logging.getLogger(__name__)

Report = Callable[[dict[str, float]], None]


def learning_rate(config: TrainConfig, step: int) -> float:
    """Rate of optimizer step ``step`` (from 0): linear warm-up, then half a cosine to the minimum.

    Loshchilov & Hutter 2017 (SGDR), equation 5, without restarts.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    span = max(1, config.max_steps - 1 - config.warmup_steps)
    progress = min(1.0, (step - config.warmup_steps) / span)
    floor = config.min_learning_rate_ratio
    return config.learning_rate * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


def check_batches(config: TrainConfig, world: int) -> None:
    """Refuse a global batch that the ranks cannot share evenly.

    Raises:
        TrainingError: with the arithmetic in the message.
    """
    if config.global_batch % (config.micro_batch * world):
        raise TrainingError(
            f"global_batch {config.global_batch} cannot be shared by {world} ranks in "
            f"micro-batches of {config.micro_batch}: {config.micro_batch} × {world} = "
            f"{config.micro_batch * world} does not divide it; choose a multiple of that"
        )


def order(config: TrainConfig, train: Dataset) -> Order:
    """The order of the samples that ``config.shuffle`` asks for."""
    if config.shuffle == "windowed":
        sizes = train.union.samples
        return windowed(train.fingerprint, config.seed, sizes, config.window_samples)
    return uniform(train.fingerprint, config.seed, len(train))


class Loop:
    """Trains a workload's model.

    Args:
        report: called on every rank with each metric line; rank 0's caller prints it.
    """

    def __init__(
        self,
        config: TrainConfig,
        workload: Workload,
        strategy: Strategy,
        checkpoints: Checkpoints,
        report: Report,
    ) -> None:
        check_batches(config, strategy.world)
        self.config, self.workload, self.strategy = config, workload, strategy
        self.checkpoints, self.report = checkpoints, report
        torch.manual_seed(config.seed)
        self.model = workload.model().to(strategy.device)
        self.optimizer = _optimizer(self.model, config)
        self.step = 0
        self._resume()
        self.wrapped = strategy.wrap(self.model)
        self._began, self._samples, self._units = time.perf_counter(), 0, 0.0
        self._stalled = 0.0  # seconds, of all steps before the last line

    def train(self, train: Dataset, validation: Dataset) -> nn.Module:
        """Run to ``max_steps`` and return the trained model.

        Raises:
            TrainingError: the loss or the gradient is not finite, or SIGTERM asked to stop.
        """
        with self._loader(train) as loader, _noticing_sigterm() as stop:
            while self.step < self.config.max_steps:
                asked = self._train_step(loader, stop_asked=stop())
                self._after_step(validation)
                if asked and self.step < self.config.max_steps:
                    self._save()
                    raise TrainingError(
                        f"stopped by SIGTERM after step {self.step}; a checkpoint is saved, and a "
                        "job with the same settings and data goes on from it"
                    )
        return self.model

    def _loader(self, train: Dataset) -> Loader:
        config, strategy = self.config, self.strategy
        return Loader(
            train,
            order(config, train),
            global_batch=config.global_batch,
            micro_batch=config.micro_batch,
            rank=strategy.rank,
            world=strategy.world,
            position=self.step * config.global_batch,
            device=strategy.device,
        )

    def _train_step(self, loader: Loader, *, stop_asked: bool) -> bool:
        """One optimizer step; True when any rank was asked to stop."""
        config, strategy = self.config, self.strategy
        batches = config.global_batch // (config.micro_batch * strategy.world)
        # Dropout and the like are drawn anew from (seed, step, rank): a resumed run draws the same.
        torch.manual_seed(_mix(config.seed, self.step, strategy.rank))
        totals = torch.zeros(3, dtype=torch.float64, device=strategy.device)
        self.optimizer.zero_grad()
        for number in range(1, batches + 1):
            last = number == batches
            with contextlib.nullcontext() if last else strategy.accumulating(self.wrapped):
                loss, count = self._loss(next(loader))
                loss.backward()
            totals[0] += loss.detach()
            totals[1] += count
        mine = float(totals[0])
        totals[2] = stop_asked
        loss_sum, units, asked = strategy.sum(totals).tolist()
        self._check(loss_sum, "loss", mine)
        # Ranks averaged sums of losses; the mean over units is what the step is taken on.
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(strategy.world / units)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), config.grad_clip))
        self._check(norm, "gradient norm", norm)
        rate = learning_rate(config, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step += 1
        self._samples, self._units = self._samples + config.global_batch, self._units + units
        if self.step % config.log_interval == 0 or self.step in (1, config.max_steps):
            self._log(loss_sum / units, rate, norm, loader.stalled)
        return bool(asked)

    def _on_device(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        device = self.strategy.device
        return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}

    def _loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        kind = self.strategy.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            return self.workload.loss(self.wrapped, self._on_device(batch))

    def _check(self, value: float, what: str, mine: float) -> None:
        """Stop every rank when a number that they share is not finite; nothing is saved."""
        if math.isfinite(value):
            return
        numbers = enumerate(self.strategy.gather(mine))
        bad = ", ".join(str(rank) for rank, number in numbers if not math.isfinite(number))
        first = self.step * self.config.global_batch
        raise TrainingError(
            f"{what} is {value} at step {self.step + 1} on rank {bad or '(the sum)'}, in the "
            f"samples at positions {first} to {first + self.config.global_batch - 1} of the order; "
            "nothing is saved: lower learning_rate, or look at those samples"
        )

    def _after_step(self, validation: Dataset) -> None:
        config = self.config
        if self.step % config.validation_interval == 0 or self.step == config.max_steps:
            began = time.perf_counter()
            loss = self._validate(validation)
            if not math.isfinite(loss):
                raise TrainingError(
                    f"validation loss is {loss} after step {self.step}; nothing is saved: "
                    "lower learning_rate"
                )
            self.report({"step": self.step, "validation_loss": loss})
            self._began += time.perf_counter() - began  # not training time
        if self.step % config.checkpoint_interval == 0 or self.step == config.max_steps:
            self._save()

    @torch.no_grad()
    def _validate(self, validation: Dataset) -> float:
        """Mean loss over the first ``validation_samples``, shared by the ranks."""
        count = min(len(validation), self.config.validation_samples)
        totals = torch.zeros(2, dtype=torch.float64, device=self.strategy.device)
        mine = range(self.strategy.rank, count, self.strategy.world)
        self.model.eval()
        for start in range(0, len(mine), self.config.micro_batch):
            samples = validation.read(mine[start : start + self.config.micro_batch])
            batch = {name: torch.from_numpy(array) for name, array in samples.items()}
            loss, units = self.workload.loss(self.model, self._on_device(batch))
            totals += torch.stack([loss.double(), units.double()])
        self.model.train()
        loss_sum, units = self.strategy.sum(totals).tolist()
        return loss_sum / units

    def _log(self, loss: float, rate: float, norm: float, stalled: float) -> None:
        now = time.perf_counter()
        elapsed = now - self._began
        self.report(
            {
                "step": self.step,
                "loss": loss,
                "learning_rate": rate,
                "grad_norm": norm,
                "samples_per_second": self._samples / elapsed,
                "units_per_second": self._units / elapsed,
                "data_stall": (stalled - self._stalled) / elapsed,
            }
        )
        self._began, self._samples, self._units, self._stalled = now, 0, 0.0, stalled

    def _save(self) -> None:
        if self.strategy.rank == 0:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            self.checkpoints.save(self.step, state)

    def _resume(self) -> None:
        """Rank 0 reads, and tells the others: only its node's folder is sure to be complete."""
        found = self.checkpoints.newest() if self.strategy.rank == 0 else None
        found = self.strategy.from_first(found)
        if found is not None:
            self.step, state = found
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.strategy.rank == 0:
                log.info("resumed from the checkpoint of step %d", self.step)


def _mix(seed: int, step: int, rank: int) -> int:
    """A seed of its own for each step and rank: 64 bits of a hash."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step} {rank}".encode()).digest()[:8])


def _optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019); norms and biases are not decayed."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, fused=True)


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
