"""Rules of one forward and backward pass."""

import random
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from training.microbatches import MicroBatches, depends_on_micro_batch
from training.tools.contract_tests.contract import (
    SAMPLES,
    SEED,
    Fault,
    NotChecked,
    Trial,
    compute_loss,
    locate_method,
    rule,
    switch_mode,
)

CLOSE = 1e-4
"""Relative tolerance: float32 sums in another order differ by less than this."""


@rule(
    "runs", "inputs, model, loss and units fit each other, also for one sample", needs=("shards",)
)
def check_fit(trial: Trial) -> Iterator[Fault]:
    for count in (SAMPLES, 1):
        if faults := list(_check_batch(trial, count)):
            yield from faults
            return


def _check_batch(trial: Trial, count: int) -> Iterator[Fault]:
    workload, batch = trial.shared_workload, trial.make_batch(0, count)
    model = trial.create_model()
    inputs = workload.inputs(batch)
    if not isinstance(inputs, tuple) or not all(isinstance(value, Tensor) for value in inputs):
        yield Fault(
            f"inputs() returns {type(inputs).__name__}, expected a tuple of tensors",
            locate_method(workload, "inputs"),
            "return (tensor,), with the comma, also for one",
        )
        return
    outputs = model(*inputs)
    for label, tensor, method in [
        *(("an input", value, "inputs") for value in inputs),
        ("the outputs", outputs, "model"),
    ]:
        yield from _check_first_dimension(trial, label, tensor, method, count)
    if not isinstance(outputs, Tensor) or not outputs.dim() or len(outputs) != count:
        return
    if not outputs.is_floating_point():
        yield Fault(
            f"the outputs are {outputs.dtype}",
            locate_method(workload, "model"),
            "return floating-point outputs",
        )
        return
    _, loss = compute_loss(workload, model, batch)
    yield from _check_loss(trial, loss)
    if count == SAMPLES:  # one sample may have no units
        yield from _check_units(trial, workload.units(batch))


def _check_first_dimension(
    trial: Trial, label: str, tensor: object, method: str, count: int
) -> Iterator[Fault]:
    if not isinstance(tensor, Tensor):
        yield Fault(
            f"{label} are {type(tensor).__name__}, expected one tensor",
            locate_method(trial.shared_workload, method),
            "join several by torch.cat or torch.stack, and split them in loss()",
        )
    elif not tensor.dim() or len(tensor) != count:
        yield Fault(
            f"the shape of {label} of {count} sample{'s' * (count > 1)} is {tuple(tensor.shape)}",
            locate_method(trial.shared_workload, method),
            "let the first dimension be the sample; give squeeze() the dimension that it removes",
        )


def _check_loss(trial: Trial, loss: object) -> Iterator[Fault]:
    location = locate_method(trial.shared_workload, "loss")
    if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
        description = (
            f"{tuple(loss.shape)} {loss.dtype}" if isinstance(loss, Tensor) else repr(loss)
        )
        yield Fault(
            f"loss() returns {description}, expected one floating-point number, 0-dim",
            location,
            "sum over all samples and units: reduction='sum', or .sum()",
        )
    elif not torch.isfinite(loss):
        yield Fault(
            f"the loss of fresh weights is {float(loss.detach())}",
            location,
            "look for log(0), a division by 0, values that are missing (NaN)",
        )
    elif not loss.requires_grad:
        yield Fault(
            "the loss does not depend on any weight",
            location,
            "leave out detach(), item(), no_grad() and argmax()",
        )


def _check_units(trial: Trial, units: object) -> Iterator[Fault]:
    if not isinstance(units, Tensor) or units.dim():
        yield Fault(
            f"units() returns {units!r:.80}, expected a tensor of one number, 0-dim",
            locate_method(trial.shared_workload, "units"),
            "return torch.tensor(n, device=…), or a .sum()",
        )
    elif not float(units) > 0:
        yield Fault(
            f"units() counts {float(units):g} in {SAMPLES} samples",
            locate_method(trial.shared_workload, "units"),
            "count what the loss is summed over",
        )


@rule("loss is a sum", "losses and units of samples add up")
def check_additivity(trial: Trial) -> Iterator[Fault]:
    workload, model = trial.shared_workload, trial.create_model()
    with switch_mode(model, training=False), torch.no_grad():
        outputs, full_loss = compute_loss(workload, model, trial.make_batch())
        cut = 3  # The parts are unequal, because with halves a mean would look like half a sum.
        parts = [
            workload.loss(outputs[start:stop], trial.make_batch(start, stop))
            for start, stop in ((0, cut), (cut, SAMPLES))
        ]
    counts = [
        float(workload.units(trial.make_batch(*bounds))) for bounds in ((0, cut), (cut, SAMPLES))
    ]
    units = float(workload.units(trial.make_batch()))
    if abs(sum(counts) - units) > CLOSE * units:
        yield Fault(
            f"{SAMPLES} samples have {units:g} units, {cut} and {SAMPLES - cut} of them "
            f"{counts[0]:g} and {counts[1]:g}",
            locate_method(workload, "units"),
            "count the units of each sample by itself, and add them up",
        )
    total, (first, second) = float(full_loss), map(float, parts)
    if abs(first + second - total) <= CLOSE * max(abs(total), 1e-6):
        return
    mean = (first * cut + second * (SAMPLES - cut)) / SAMPLES
    fix = "it looks like a mean over the samples: use reduction='sum', or .sum() for .mean()"
    if abs(mean - total) > 0.02 * abs(total):
        # With ``by_batch``, micro_batch is part of the training's identity.
        if getattr(workload, "by_batch", False):
            return
        fix = (
            "a sample's loss depends on the others in its micro-batch, as with InfoNCE, and so the "
            "weights depend on micro_batch: make it depend on the sample alone, or declare that "
            "by by_batch = True in the Workload"
        )
    yield Fault(
        f"the loss of {SAMPLES} samples is {total:g}, those of {cut} and {SAMPLES - cut} of them "
        f"are {first:g} and {second:g}",
        locate_method(workload, "loss"),
        fix,
    )


@rule("evaluation is calm", "in evaluation the same sample gives the same outputs")
def check_evaluation(trial: Trial) -> Iterator[Fault]:
    model, passes = trial.create_model(), []
    with switch_mode(model, training=False), torch.no_grad():
        for seed in (SEED, SEED + 1):
            torch.manual_seed(seed)
            passes.append(compute_loss(trial.shared_workload, model, trial.make_batch())[0])
    if not torch.equal(*passes):
        difference = float((passes[0] - passes[1]).abs().max())
        yield Fault(
            f"two passes in evaluation differ by {difference:g}",
            locate_method(trial.shared_workload, "model"),
            "give functional.dropout training=self.training; draw only if self.training",
        )


@rule("samples stand alone", "in evaluation no sample's outputs depend on its neighbours")
def check_independence(trial: Trial) -> Iterator[Fault]:
    model = trial.create_model()
    with switch_mode(model, training=False), torch.no_grad():
        together, _ = compute_loss(trial.shared_workload, model, trial.make_batch())
        single = [
            compute_loss(trial.shared_workload, model, trial.make_batch(n, n + 1))[0]
            for n in range(SAMPLES)
        ]
    if any(outputs.shape[1:] != together.shape[1:] for outputs in single):
        raise NotChecked("the shape of the outputs depends on the batch")
    difference = (torch.cat(single) - together).abs().max()
    if not difference <= 1e-3 * max(1e-3, float(together.abs().max())):
        yield Fault(
            f"outputs of a sample alone and among {SAMPLES} differ by {float(difference):g}",
            locate_method(trial.shared_workload, "model"),
            "normalise, softmax and pool over a sample's own dimensions; a BatchNorm obeys eval()",
        )


@rule("random numbers are torch's", "random numbers are drawn from torch's generator, and declared")
def check_generators(trial: Trial) -> Iterator[Fault]:
    states = _read_foreign_states()
    model = trial.create_model()
    micro = MicroBatches(model, SEED, SAMPLES)
    micro.begin_step(0, torch.device("cpu"))
    micro.begin(0)
    before = torch.get_rng_state()
    compute_loss(trial.shared_workload, model, trial.make_batch())
    drew = not torch.equal(torch.get_rng_state(), before)
    for name, state in _read_foreign_states().items():
        if state != states[name]:
            yield Fault(
                f"model or loss draws from {name}, which the training's seed does not set",
                locate_method(trial.shared_workload, "model"),
                "use torch.rand, torch.randn, torch.randperm",
            )
    if drew and not depends_on_micro_batch(trial.shared_workload, model):
        yield Fault(
            "the forward pass draws torch's random numbers outside of modules known to draw",
            locate_method(trial.shared_workload, "model"),
            "use training.dropout.Dropout, or set by_batch = True in the Workload",
        )


def _read_foreign_states() -> dict[str, str]:
    """Return the states of the random generators that the training does not seed."""
    return {
        "Python's random": repr(random.getstate()),
        "numpy's random": repr(np.random.get_state()),
    }


@rule("units fit the loss", "the units are what the loss is summed over")
def check_units(trial: Trial) -> Iterator[Fault]:
    """Compare the units with the number of outputs that the loss depends on, found by its
    gradient.
    """
    workload, model, batch = trial.shared_workload, trial.create_model(), trial.make_batch()
    outputs = compute_loss(workload, model, batch)[0].detach().requires_grad_()
    gradient = torch.autograd.grad(workload.loss(outputs, batch), outputs)[0] != 0
    units = float(workload.units(batch))
    if units != int(units):
        raise NotChecked(f"units are weights: {units:g}")
    other_dimensions = range(1, gradient.dim())
    counts = {SAMPLES}
    for size in range(gradient.dim()):
        for kept_dimensions in combinations(other_dimensions, size):
            gone = [n for n in other_dimensions if n not in kept_dimensions]
            counts.add(int((gradient.amax(gone) if gone else gradient).sum()))
    if units not in counts:
        yield Fault(
            f"{SAMPLES} samples have {units:g} units, but the loss depends on "
            f"{' or '.join(map(str, sorted(counts)))} of the outputs' elements, shape "
            f"{tuple(outputs.shape)}",
            locate_method(workload, "units"),
            "count with the same mask that the loss uses",
        )


@rule("gradients reach all weights", "each weight that is trained has a gradient")
def check_gradients(trial: Trial) -> Iterator[Fault]:
    model = trial.create_model()
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    solver, missing = torch.optim.Adam(trainable.values(), 1e-3), set(trainable)
    # Several steps, because weights that begin at zero pass gradients on only after a step.
    for _ in range(3):
        solver.zero_grad()
        compute_loss(trial.shared_workload, model, trial.make_batch())[1].backward()
        missing -= {n for n, p in trainable.items() if p.grad is not None and p.grad.any()}
        solver.step()
    if missing:
        names = sorted(missing)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield Fault(
            f"no gradient for {', '.join(names[:3])}{more}",
            locate_method(trial.shared_workload, "model"),
            "use them, freeze them by requires_grad_(False), or leave them out; look for detach()",
        )
