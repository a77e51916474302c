"""The baseline that ignores samples: the same outputs for all, those with the lowest loss."""

import numpy as np
import torch
from torch import Tensor

from training.data.dataset import Dataset
from training.defaults.default_scores import Batches, Measuring, build_columns, count_batch_samples
from training.scores import compute_ratios
from trainyard.common.errors import TrainingError

ITERATIONS = 200


def evaluate_constant(
    workload: Measuring, train: Dataset, test: Dataset, limit: int
) -> dict[str, float]:
    """Return the metrics on the test split of outputs that are the same for every sample.

    The outputs are fitted on about ``limit`` units of ``train``; units are what the workload's
    ``units`` counts.
    """
    outputs = _fit_outputs(workload, train, limit)
    blocks = []
    with torch.inference_mode():
        batches = Batches(workload)
        for samples in test.iter_batches(workload.at_once):
            batch = batches.make_batch(samples)
            size = int(count_batch_samples(batch))
            measurements = build_columns(
                workload.measure(outputs.expand(size, *outputs.shape), batch)
            )
            blocks.append({"group": np.zeros(size, np.int64), **measurements})
    return {name: entry["value"] for name, entry in compute_ratios(blocks).items()}


def _fit_outputs(workload: Measuring, train: Dataset, limit: int) -> Tensor:
    """Fit the outputs by L-BFGS, which finds the single minimum if the loss is convex.

    Raises:
        TrainingError: the fitted outputs are not finite.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = workload.model().eval()
        sample = Batches(workload).make_batch(train.read([0]))
        shape = model(*workload.inputs(sample)).shape[1:]
    outputs = torch.zeros(shape, requires_grad=True)
    batches = _select_batches(workload, train, limit)
    units = sum(float(workload.units(batch)) for batch in batches)
    solver = torch.optim.LBFGS([outputs], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        """Return the loss per unit and compute its gradient; L-BFGS calls this repeatedly."""
        solver.zero_grad()
        total = torch.zeros(())
        for batch in batches:
            size = int(count_batch_samples(batch))
            loss = workload.loss(outputs.expand(size, *shape), batch) / units
            loss.backward()
            total += loss.detach()
        return total

    solver.step(closure)
    if not torch.isfinite(outputs).all():
        raise TrainingError(
            f"{type(workload).__module__}: baseline constant: no finite outputs minimize the "
            "loss; check the loss, or leave the baseline out (fitted = ())"
        )
    return outputs.detach()


def _select_batches(workload: Measuring, train: Dataset, limit: int) -> list[dict[str, Tensor]]:
    """Return batches of evenly spaced samples that have about ``limit`` units together."""
    size = workload.at_once
    batches = Batches(workload)
    first = batches.make_batch(train.read(np.arange(min(size, len(train)))))
    units = max(1.0, float(workload.units(first)) / min(size, len(train)))
    sample_count = min(len(train), max(1, int(limit / units)))
    indices = np.arange(sample_count) * len(train) // sample_count
    starts = range(0, sample_count, size)
    return [batches.make_batch(train.read(indices[start : start + size])) for start in starts]
