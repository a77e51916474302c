"""Requests a second, latency and processor time of a registered model, beside AWS's toolkit.

python -m benchmarks.serving [--engine PYTHON] [--model language_model] [--rounds 5] [--json FILE]

The servers are TorchServe with AWS's inference toolkit, started as AWS's PyTorch image starts
them, on this machine; the client shares its cores. Contenders serve one artifact and run side by
side, but are asked in turns: as AWS's toolkit comes (a worker per core, one request at a time);
with threads that wait passively; with TorchServe's batches besides, over which the toolkit loops;
as our package says, whose handler answers a batch in one pass. First clients ask without a pause.
Then requests come at a fixed rate, half of what the toolkit with passive threads has answered, and
each is timed from the moment when it was due. Every answer is compared with the model's own to that
request alone.

The engine needs Java 11 or newer on the path, and in an environment that has torch and the job's
packages: pip install --no-deps torchserve sagemaker-pytorch-inference sagemaker-inference retrying
'setuptools<81'.
"""

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.harness import Figure, JsonFile, Section, Target, report, turns
from benchmarks.serving.model_servers_compared import (
    AWS,
    CONTENDERS,
    OURS,
    PASSIVE,
    Server,
    running,
)
from benchmarks.serving.requests_in_time import by_clients, by_clock
from training.defaults.request_batch import rows
from training.export import artifact
from training.export.inference import open_served
from training.export.weight_location import LocalWeights
from training.workloads import load, load_packing
from training.workloads.tabular.column_statistics import FILE, Features

KINDS = ("red", "green", "blue", None)
SETTINGS: dict[str, dict[str, Any]] = {
    "tabular": {
        "categories": ["c0", "c1", "c2", "c3"],
        "numbers": ["n0", "n1", "n2", "n3", "n4", "n5"],
        "label": "label",
        "hidden": [256, 256],
    },
    "language_model": {"context_length": 128, "layers": 2, "heads": 4, "dim": 128},
}
REQUESTS = 500
OPEN_LOOP = ("p50 ms", "p99 ms", "refused %")
app = typer.Typer(add_completion=False)


def made(name: str, folder: Path) -> None:
    """Write an artifact of the workload with fresh weights; what it answers does not matter."""
    torch.manual_seed(0)
    settings = SETTINGS[name]
    folder.mkdir()
    if name == "tabular":
        (folder / FILE).write_bytes(features(settings))
    workload = load(name, settings, folder)
    described = {"workload": name, "workload_config": settings}
    artifact.save(folder, LocalWeights(workload.model().state_dict()), workload, described, [])
    artifact.add_code(folder, name)


def features(settings: dict[str, Any]) -> bytes:
    """What a training split of these rows would have taught the tabular workload."""
    packing = load_packing("tabular", settings)
    packer = packing.packer()
    packer.add(
        rows([one["record"] | {"label": 1.0} for one in requests("tabular")], packing.columns)
    )
    return Features.from_statistics(packing.config, [packer.statistics()]).content()


def requests(name: str) -> list[dict[str, Any]]:
    """Seeded requests."""
    random = np.random.default_rng(0)
    if name == "language_model":
        return [{"tokens": random.integers(0, 256, 129).tolist()} for _ in range(REQUESTS)]
    config = SETTINGS[name]
    return [
        {
            "record": {c: KINDS[random.integers(len(KINDS))] for c in config["categories"]}
            | {n: float(random.normal()) for n in config["numbers"]}
        }
        for _ in range(REQUESTS)
    ]


@app.command()
def main(
    engine: Annotated[Path, typer.Option(help="an interpreter with TorchServe")] = Path(
        sys.executable
    ),
    model: Annotated[str, typer.Option(help=" or ".join(SETTINGS))] = "tabular",
    rounds: Annotated[int, typer.Option(help="turns of each contender")] = 5,
    seconds: Annotated[float, typer.Option(help="of each measurement")] = 5.0,
    clients: Annotated[int, typer.Option(help="that ask without a pause")] = 16,
    json_file: JsonFile = None,
) -> None:
    """Measure how fast a registered model is served."""
    asked = requests(model)
    bodies = [json.dumps(one).encode() for one in asked]
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "artifact"
        made(model, folder)
        served = open_served(folder)
        expected = [_plain(served.answer(one)) for one in asked]
        with running(CONTENDERS, folder, Path(place), engine) as servers:
            for number, name in turns([c.name for c in CONTENDERS], rounds + 1):
                most = partial(by_clients, servers[name].port, bodies, clients, seconds)
                _measured(servers[name], most, found[name], expected, number)
            rate = Figure(tuple(found[PASSIVE.name]["rate"])).median / 2
            for _, name in turns([c.name for c in CONTENDERS], rounds):
                one = by_clock(servers[name].port, bodies, rate, seconds)
                found[name]["p50"].append(one.milliseconds(0.5))
                found[name]["p99"].append(one.milliseconds(0.99))
                found[name]["refused"].append(one.refused / (one.refused + len(one.seconds)))
    raise typer.Exit(int(_report(model, clients, rate, found, json_file)))


def _measured(
    server: Server, ask: Any, found: dict[str, list[float]], expected: Sequence[Any], number: int
) -> None:
    """Ask, compare the answers, and keep the figures; those of round 0 warm the server up."""
    before = server.cpu_seconds()
    answered = ask()
    cpu = server.cpu_seconds() - before
    if number:
        found["rate"].append(answered.rate)
        found["cpu"].append(cpu / len(answered.seconds) * 1000)
    answers = {at: _plain(json.loads(body)) for at, body in answered.bodies.items()}
    other = [
        abs(a - b) / (abs(b) or 1)
        for at in answers
        for a, b in zip(answers[at], expected[at], strict=True)
    ]
    found["differs"].append(max(other))


def _plain(answer: dict[str, Any]) -> list[float]:
    return [float(value) for value in answer.values()]


def _report(
    model: str,
    clients: int,
    rate: float,
    found: dict[str, dict[str, list[float]]],
    file: Path | None,
) -> bool:
    figures = {
        name: {what: Figure(tuple(values)) for what, values in each.items()}
        for name, each in found.items()
    }
    section = Section(model, f"{model}: {clients} clients; then {rate:.0f} requests a second")
    section.columns = ("", "requests/s", "÷ as it comes", "CPU ms", *OPEN_LOOP, "differs by")
    for name, each in figures.items():
        section.rows.append((
            name, each["rate"].text(digits=0), each["rate"].over(figures[AWS.name]["rate"]).text(),
            each["cpu"].text(), each["p50"].text(digits=1), each["p99"].text(digits=1),
            each["refused"].text(0.01, 0), f"{each['differs'].high:.1e}",
        ))  # fmt: skip
    section.data = {
        name: {what: figure.data() for what, figure in each.items()}
        for name, each in figures.items()
    }
    rates = {name: each["rate"] for name, each in figures.items()}
    section.targets = [
        Target(f"requests/s ÷ {one.name}", rates[OURS.name].over(rates[one.name]), "≥", 2)
        for one in (AWS, PASSIVE)
    ]
    return report([section], file, {"model": model, "clients": clients, "open loop": rate})


if __name__ == "__main__":
    app()
