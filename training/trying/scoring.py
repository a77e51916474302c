"""Rules of what evaluate, the gate and an endpoint ask of a workload."""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from training.data.dataset import Dataset, Share
from training.data.writer import write_dataset
from training.scores import Block
from training.trying.contract import Fault, NotChecked, place, rule
from training.trying.forward import CLOSE
from training.trying.trial import SEED, Trial, copied, losses, mode
from training.workloads import takes_share

UNITS = 100_000
"""What baselines may see here."""


@rule("scores", "each example of the test split has a finite row, and the same one each time")
def scored(trial: Trial) -> Iterator[Fault]:
    model, where = trial.model().eval(), place(trial.one, "scores", "measure")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = _table(trial, model)
    if changed := [n for n, t in model.state_dict().items() if not torch.equal(t, before[n])]:
        yield Fault(f"scores() changes the model's {changed[0]}", where, "score under eval()")
    for name, column in first.items():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            yield Fault(f"column {name} is not finite", where, "look for log(0) and 0 / 0")
    if missing := [name for name in _columns(trial) if name not in first]:
        yield Fault(f"the rows have no {', '.join(missing)}", where, "see training/scores.py")
        return
    other = _table(trial, trial.model(seed=SEED + 1).eval())
    for name in ("example", "group"):
        if not np.array_equal(first[name], other[name]):
            yield Fault(
                f"column {name} is another one for another model",
                where,
                "let rows, their order and names follow from the split alone",
            )
    torch.manual_seed(SEED + 2)
    again = _table(trial, model)
    if differ := [n for n in first if not np.array_equal(first[n], again[n])]:
        yield Fault(
            f"the same model scores {differ[0]} in another way the second time",
            where,
            "score in evaluation, and draw nothing",
        )


@rule("scores agree with the loss", "a metric's sums are the loss", needs=("scores",))
def agreeing(trial: Trial) -> Iterator[Fault]:
    model = trial.model().eval()
    table = _table(trial, model)
    total, units = 0.0, 0.0
    with mode(model, training=False), torch.no_grad():
        for _, batch in trial.batches(trial.test):
            total += float(losses(trial.one, model, batch)[1])
            units += float(trial.one.units(batch))
    sums = {n.removesuffix(".sum"): table[n].sum() for n in table if n.endswith(".sum")}
    weights = {name: table[f"{name}.weight"].sum() for name in sums}
    if any(_near(sums[n], total) and _near(weights[n], units) for n in sums):
        return
    if "loss" not in sums:
        raise NotChecked(f"none of {', '.join(sums)} is the loss itself")
    yield Fault(
        f"over the test split the metric loss is {sums['loss']:g} / {weights['loss']:g}, loss() "
        f"and units() say {total:g} / {units:g}",
        place(trial.one, "scores", "measure"),
        "give each example's own loss as its sum, and its units as its weight",
    )


@rule("rows stand alone", "an example's row does not depend on its neighbours", needs=("scores",))
def row_by_row(trial: Trial) -> Iterator[Fault]:
    model = trial.model().eval()
    whole = _table(trial, model)
    if len(whole["example"]) != len(trial.test):
        raise NotChecked("a row is not a sample of the test split")
    with _written(trial, range(1)) as alone:
        found = joined(list(trial.one.scores(model, alone)))
    row = whole["example"].tolist().index(found["example"][0])
    for name in (name for name in _columns(trial) if "." in name):
        one, among = float(found[name][0]), float(whole[name][row])
        if not _near(one, among):
            yield Fault(
                f"{name} of an example is {one:g} alone and {among:g} among {len(trial.test)}",
                place(trial.one, "measure", "scores"),
                "give each sample its own value: no .mean() or .sum() over the batch",
            )


@rule("shares", "the rows of all shares of a split are those of the whole", needs=("scores",))
def shared(trial: Trial) -> Iterator[Fault]:
    if not takes_share(trial.one):
        raise NotChecked("scores() takes no share, so that one process scores all of a split")
    model = trial.model().eval()
    whole, shares = _table(trial, model), [Share(index, 3) for index in range(3)]
    found = joined([b for one in shares for b in trial.one.scores(model, trial.test, (), one)])
    if differ := [n for n in whole if not np.array_equal(whole[n], found[n])]:
        yield Fault(
            f"scores() of three shares gives another {differ[0]}: {len(found[differ[0]])} rows, "
            f"and {len(whole[differ[0]])} without a share",
            place(trial.one, "scores"),
            "pass share on to Dataset.stream, and number rows from Passage.start",
        )


@rule("metrics", "the metrics are those of the SPEC, and finite", needs=("scores",))
def measured(trial: Trial) -> Iterator[Fault]:
    found = trial.one.metrics(list(trial.one.scores(trial.model().eval(), trial.test)))
    where = place(trial.one, "metrics", "measure")
    if found.keys() != trial.spec.metrics.keys():
        yield Fault(
            f"metrics() gives {', '.join(found)}; the SPEC names {', '.join(trial.spec.metrics)}",
            where,
            "name the same metrics in both (of a Simple workload: better and measure)",
        )
    for name, entry in found.items():
        if not math.isfinite(entry["value"]):
            yield Fault(f"{name} is {entry['value']}", where, "look at its sums and weights")


@rule("examples", "equal content has an equal name, wherever it lies", needs=("scores",))
def named(trial: Trial) -> Iterator[Fault]:
    where = place(trial.one, "examples")
    here = _names(trial, trial.test)
    rows = _table(trial, trial.model().eval())["example"]
    if sorted(rows.tolist()) != sorted(here):
        yield Fault(
            "scores() and examples() name the examples of the test split differently",
            where,
            "take the same hash in both: training.data.hashes.sample_hashes",
        )
        return
    with _written(trial, range(len(trial.test))) as elsewhere:
        there = _names(trial, elsewhere)
    if len(set(here)) == 1 < len(here):
        yield Fault(f"all {len(here)} examples have one name", where, "hash their content")
    elif len(trial.test) == len(here) and set(here) != set(there):
        yield Fault(
            "the same samples have other names in another dataset",
            where,
            "hash their content, not their place: training.data.hashes.sample_hashes",
        )


@rule("baselines", "each baseline of the SPEC has each metric", needs=("scores",))
def compared(trial: Trial) -> Iterator[Fault]:
    found = trial.one.baselines(trial.train, trial.test, UNITS)
    where = place(trial.one, "baselines")
    if found.keys() != set(trial.spec.baselines):
        yield Fault(
            f"baselines() gives {', '.join(found) or 'none'}; the SPEC names "
            f"{', '.join(trial.spec.baselines) or 'none'}",
            where,
            "name the same in both",
        )
    for name, metrics in found.items():
        if wrong := [n for n, value in metrics.items() if not math.isfinite(value)]:
            yield Fault(f"{name} has no finite {wrong[0]}", where, "look at what it is fitted on")


@rule("flops and blocks", "operations are counted, and blocks are parts of the model")
def described(trial: Trial) -> Iterator[Fault]:
    model = trial.model()
    flops = trial.one.flops(model)
    if not (math.isfinite(flops) and flops >= 0):
        yield Fault(f"flops() gives {flops}", place(trial.one, "flops"), "count a unit's")
    parts = {id(module) for module in model.modules()}
    if any(id(block) not in parts for block in trial.one.blocks(model)):
        yield Fault(
            "blocks() gives a module that is not in the model",
            place(trial.one, "blocks"),
            "give submodules of the model that it is asked for",
        )


@rule("answer", "a record is answered with JSON")
def answered(trial: Trial) -> Iterator[Fault]:
    from training.workloads.simple import Simple

    if trial.raw is None or not isinstance(trial.one, Simple):
        raise NotChecked("what a request looks like is the workload's own business")
    record = _first_record(trial.raw)
    columns = trial.one.packing.columns
    request = {"record": {name: value for name, value in record.items() if name in columns}}
    with torch.inference_mode():
        answer = trial.one.answer(trial.model().eval(), request)
    try:
        json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError) as error:
        yield Fault(
            f"the answer is no JSON: {error}",
            place(trial.one, "answer"),
            "give finite numbers, lists and texts: tensor.tolist()",
        )


def _first_record(raw: Path) -> Mapping[str, Any]:
    """Of the first JSON Lines file."""
    files = [raw] if raw.is_file() else sorted(raw.rglob("*.jsonl"))
    if not files or files[0].suffix != ".jsonl":
        raise NotChecked("the sample data are no .jsonl, so there is no record as a request has it")
    with files[0].open(encoding="utf-8") as lines:
        return json.loads(lines.readline())


@contextmanager
def _written(trial: Trial, indices: range) -> Iterator[Dataset]:
    """Write these samples of the test split to a dataset of their own."""
    with tempfile.TemporaryDirectory() as name:
        write_dataset(
            Path(name),
            copied(trial.test.read(indices)),
            trial.test.fields,
            shard_bytes=1 << 30,
            workload=trial.test.merged.workload,
        )
        yield Dataset(name)


def _table(trial: Trial, model: nn.Module) -> dict[str, np.ndarray]:
    """All blocks as one."""
    return joined(list(trial.one.scores(model, trial.test)))


def joined(blocks: list[Block]) -> dict[str, np.ndarray]:
    """Blocks one after the other."""
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _names(trial: Trial, dataset: Dataset) -> list[int]:
    return [int(one) for block in trial.one.examples(dataset) for one in block["example"]]


def _columns(trial: Trial) -> list[str]:
    """What a row must have."""
    spec = trial.spec
    compared = spec.metrics if spec.compared_in is None else spec.compared_in
    return ["example", "group", *(f"{n}.{part}" for n in compared for part in ("sum", "weight"))]


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 10 * CLOSE * max(abs(other), 1e-6)
