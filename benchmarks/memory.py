"""Simulate the memory of Llama's shapes on 8 to 256 ranks, beside what others have measured.

python -m benchmarks.memory [--only "70B on 256"] [--json FILE]

Each layout is simulated by ``training.simulate``: the training's own code on tensors without
contents. Nothing in it is fitted to the published figures beside it. A layout of 405B takes
minutes: each is said when it is there, and those that FILE has are not simulated again.
"""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from benchmarks import resumed
from benchmarks.harness import show_table
from training.simulate import configured, simulate
from training.simulation.simulation_report import GIB


def _llama(layers: int, heads: int, dim: int, hidden: int) -> dict[str, Any]:
    """Llama 3.1's shape (Grattafiori et al. 2024, table 3): 8 heads of keys, untied embeddings."""
    return {
        "context_length": 8192,
        "layers": layers,
        "heads": heads,
        "kv_heads": 8,
        "dim": dim,
        "hidden_dim": hidden,
        "vocabulary": 128256,
        "tie_embeddings": False,
        "rope_theta": 500000,
    }


SHAPES = {
    "8B": _llama(32, 32, 4096, 14336),
    "70B": _llama(80, 64, 8192, 28672),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A layout of one of the shapes.

    Attributes:
        published: GiB that somebody has measured on GPUs.
        source: who, and with what.
        note: in what the published run differed, as far as it is known.
        stated: whether the source says all settings that matter.
    """

    shape: str
    world: int
    settings: dict[str, Any]
    accumulation: int = 1
    model: dict[str, Any] = field(default_factory=dict)
    published: float
    source: str = ""
    note: str = ""
    stated: bool = True

    @property
    def name(self) -> str:
        """What is set, in one line."""
        told = [f"s{self.model['context_length']}"] if self.model else []
        told += [f"{SHORT[name]}{value}" for name, value in self.settings.items()]
        return " ".join(told) + (f" × {self.accumulation}" if self.accumulation > 1 else "")

    @property
    def title(self) -> str:
        """Shape, ranks and what is set."""
        return f"{self.shape} on {self.world}: {self.name}"


SHORT = {
    "micro_batch": "b",
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "shard_degree": "hsdp",
    "activation_checkpointing": "ac=",
    "compile": "compile=",
    "float8": "",
    "float8_all_gather": "gathered=",
}

SELECTIVE = {"activation_checkpointing": "selective"}
FULL = {"activation_checkpointing": "full"}
FLOAT8 = {"float8": "tensorwise", "float8_all_gather": True}


def _torchtitan(shape: str, world: int, published: float, note: str = "", **given: Any) -> Case:
    """A row of torchtitan's tables; ``note``: how it ran there, where that is not so here."""
    return Case(
        shape=shape,
        world=world,
        published=published,
        source="torchtitan, benchmarks/*.md, H100 96 GB; the reserved maximum over the ranks",
        note=note and f"{note} there, simulated as eager",
        **given,
    )


PUBLISHED = (
    _torchtitan("8B", 8, 82.4, settings={"micro_batch": 2, **SELECTIVE}),
    _torchtitan(
        "8B", 8, 77.0, "compiled", settings={"micro_batch": 2, **SELECTIVE, "compile": True}
    ),
    _torchtitan(
        "8B", 128, 62.0, "compiled", settings={"micro_batch": 2, **SELECTIVE, "compile": True}
    ),
    _torchtitan("8B", 8, 76.8, "compiled", settings={"micro_batch": 2, **SELECTIVE, **FLOAT8}),
    _torchtitan(
        "8B",
        8,
        84.2,
        "compiled",
        settings={"micro_batch": 1, "context_parallel": 2, **FULL, **FLOAT8},
        model={"context_length": 65536},
    ),
    _torchtitan(
        "8B",
        8,
        84.0,
        "compiled",
        settings={"micro_batch": 1, "context_parallel": 4, **FULL, **FLOAT8},
        model={"context_length": 131072},
    ),
    _torchtitan("8B", 128, 61.8, "compiled", settings={"micro_batch": 2, **SELECTIVE, **FLOAT8}),
    _torchtitan(
        "70B",
        256,
        67.6,
        "compiled and with asynchronous TP",
        settings={"micro_batch": 16, "tensor_parallel": 8, **FULL, **FLOAT8},
    ),
    Case(
        shape="8B",
        world=32,
        settings={"micro_batch": 1, **SELECTIVE},
        published=68.57,
        source="aws-samples/awsome-distributed-training, torchtitan on 4 ml.p5.48xlarge",
        note="settings not stated; torchtitan's rows imply 35 for these",
        stated=False,
    ),
)
"""The rows of published memory whose features run here."""

ELSEWHERE = {
    "torchtitan 405B, all rows": "nothing: each takes half an hour of a processor, not spent yet",
    "SimuMax B200, 70b and 405b with layers cut": (
        "16-bit weights beside float32 masters, and ZeRO-1's sharded optimizer under TP"
    ),
    "litgpt and torchtune LoRA, QLoRA": "base weights kept in 16 bits, nf4",
    "torchtune full fine-tuning": "8-bit optimizer, optimizer in the backward pass",
    "Korthikanti figure 1, DeepSpeed's t5-3b": "values of a formula for another model and engine",
}
"""Published rows that are not simulated → what they have that does not run here."""


def main(
    only: Annotated[str, typer.Option(help="Layouts: a part of their names.")] = "",
    json_: Annotated[
        Path | None, typer.Option("--json", help="Keep all figures here, as they come.")
    ] = None,
) -> None:
    """Simulate every layout that somebody has measured."""
    cases = {case.title: case for case in PUBLISHED if only in case.title}
    if not cases:
        raise typer.BadParameter(f"--only {only}: no layout's name has it, like '70B on 256'")
    found = []
    for title, one in resumed.each(cases, lambda title: fullest(cases[title]), json_, {}):
        found.append((cases[title], one))
        print(
            f"{title}: {one['reserved'] / GIB:.1f} GiB, CPU {one['cpu_seconds']:.0f} s", flush=True
        )
    show(found)
    for rows, why in ELSEWHERE.items():
        print(f"not simulated: {rows}: {why}")


def fullest(case: Case) -> dict[str, Any]:
    """What is simulated of the pipeline stage that needs most."""
    settings = {"strategy": "fsdp", **case.settings}
    config = configured(case.world, case.accumulation, settings)
    shape = SHAPES[case.shape] | case.model
    found = simulate(config, "language_model", shape, case.world)
    most = max(found, key=lambda one: one["reserved"])
    sizes = {name: value for name, value in most.items() if name != "moments"}
    return sizes | {"cpu_seconds": sum(one["cpu_seconds"] for one in found)}


def error(case: Case, one: dict[str, Any]) -> float:
    """Simulated over published, less 1: of what the allocator reserves, as it is published."""
    return one["reserved"] / GIB / case.published - 1


def show(found: list[tuple[Case, dict[str, Any]]]) -> None:
    """A row for each published figure, and how far the simulation is off."""
    rows = []
    for case, one in found:
        sizes = f"{case.published:.1f}", f"{one['reserved'] / GIB:.1f}", f"{error(case, one):+.1%}"
        rows.append((case.shape, case.world, case.name, *sizes, case.note))
    columns = ("shape", "ranks", "layout", "published", "simulated", "error", "note")
    show_table(columns, rows, "GiB a GPU", 150)
    errors = {case.title: abs(error(case, one)) for case, one in found}
    print(f"mean error {mean(errors.values()):.1%} of {len(errors)} rows")
    if stated := [errors[case.title] for case, _ in found if case.stated]:
        print(f"mean error {mean(stated):.1%} of the {len(stated)} whose settings are stated")


if __name__ == "__main__":
    typer.run(main)
