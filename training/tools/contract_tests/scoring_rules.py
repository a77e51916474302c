"""Rules about what evaluation, the gate and an endpoint need from a workload."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from training.scores import Block
from training.tools.contract_tests.contract import (
    SEED,
    Fault,
    NotChecked,
    Trial,
    compute_loss,
    locate_method,
    rule,
    switch_mode,
)
from training.tools.contract_tests.forward_rules import CLOSE


@rule("scores", "each example of the test split has a finite row, and the same one each time")
def check_scores(trial: Trial) -> Iterator[Fault]:
    model, location = (
        trial.create_model().eval(),
        locate_method(trial.shared_workload, "scores", "measure"),
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = _build_score_table(trial, model)
    if changed_names := [n for n, t in model.state_dict().items() if not torch.equal(t, before[n])]:
        yield Fault(
            f"scores() changes the model's {changed_names[0]}", location, "score under eval()"
        )
    for name, column in first.items():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            yield Fault(f"column {name} is not finite", location, "look for log(0) and 0 / 0")
    if missing := [name for name in _list_score_columns(trial) if name not in first]:
        yield Fault(f"the rows have no {', '.join(missing)}", location, "see training/scores.py")
        return
    other = _build_score_table(trial, trial.create_model(seed=SEED + 1).eval())
    for name in ("example", "group"):
        if not np.array_equal(first[name], other[name]):
            yield Fault(
                f"column {name} depends on the model",
                location,
                "rows, their order and names may depend only on the split",
            )
    torch.manual_seed(SEED + 2)
    repeat = _build_score_table(trial, model)
    if differ := [n for n in first if not np.array_equal(first[n], repeat[n])]:
        yield Fault(
            f"the same model gives another {differ[0]} the second time",
            location,
            "score in evaluation mode, and draw no random numbers",
        )


@rule("scores agree with the loss", "a metric's sums are the loss", needs=("scores",))
def check_agreement(trial: Trial) -> Iterator[Fault]:
    model = trial.create_model().eval()
    table = _build_score_table(trial, model)
    total, units = 0.0, 0.0
    with switch_mode(model, training=False), torch.no_grad():
        for _, batch in trial.iter_batches(trial.test):
            total += float(compute_loss(trial.shared_workload, model, batch)[1])
            units += float(trial.shared_workload.units(batch))
    sums = {n.removesuffix(".sum"): table[n].sum() for n in table if n.endswith(".sum")}
    weights = {name: table[f"{name}.weight"].sum() for name in sums}
    if any(_is_close(sums[n], total) and _is_close(weights[n], units) for n in sums):
        return
    if "loss" not in sums:
        raise NotChecked(f"none of {', '.join(sums)} is the loss itself")
    yield Fault(
        f"over the test split the metric loss is {sums['loss']:g} / {weights['loss']:g}, loss() "
        f"and units() give {total:g} / {units:g}",
        locate_method(trial.shared_workload, "scores", "measure"),
        "give each example's own loss as its sum, and its units as its weight",
    )


@rule("metrics", "the metrics are those of the SPEC, and finite", needs=("scores",))
def check_metrics(trial: Trial) -> Iterator[Fault]:
    metrics = trial.shared_workload.metrics(
        list(trial.shared_workload.scores(trial.create_model().eval(), trial.test))
    )
    location = locate_method(trial.shared_workload, "metrics", "measure")
    if metrics.keys() != trial.spec.metrics.keys():
        yield Fault(
            f"metrics() returns {', '.join(metrics)}; the SPEC names "
            f"{', '.join(trial.spec.metrics)}",
            location,
            "name the same metrics in both (of a Simple workload: better and measure)",
        )
    for name, entry in metrics.items():
        if not math.isfinite(entry["value"]):
            yield Fault(f"{name} is {entry['value']}", location, "look at its sums and weights")


def _build_score_table(trial: Trial, model: nn.Module) -> dict[str, np.ndarray]:
    """Return the scores of the test split as one table."""
    return join_blocks(list(trial.shared_workload.scores(model, trial.test)))


def join_blocks(blocks: list[Block]) -> dict[str, np.ndarray]:
    """Join blocks, one after the other."""
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _list_score_columns(trial: Trial) -> list[str]:
    """Return the names of the columns that a row of scores must have."""
    spec = trial.spec
    metric_names = spec.metrics if spec.compared_in is None else spec.compared_in
    return [
        "example",
        "group",
        *(f"{n}.{part}" for n in metric_names for part in ("sum", "weight")),
    ]


def _is_close(value: float, other: float) -> bool:
    return abs(value - other) <= 10 * CLOSE * max(abs(other), 1e-6)
