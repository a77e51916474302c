"""The published measurements of time, from the lines of their sources to rows of Settings.

python -m benchmarks.foresight.published          # writes rows/*.jsonl anew

``text/`` has the lines as issue 17's reference has them; a third of each source's are not there,
since they are kept for acceptance. Each source is a function under ``@source`` that says in its
docstring what was assumed where the source is silent.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.foresight.models import MEGATRON, MODELS, MPT
from trainyard.common import whole_file
from trainyard.foresight.setting import Setting

HERE = Path(__file__).parent
ROWS = HERE / "rows"
Row = dict[str, Any]
"""``row``: fields of a Setting; ``measured``; ``group``: what a fold of cross-validation leaves
out; ``outlier``: whether the source itself calls the figure one."""

SOURCES: dict[str, Callable[[], Iterator[Row]]] = {}


def source(made: Callable[[], Iterator[Row]]) -> Callable[[], Iterator[Row]]:
    """Register a source: its rows stand in ``rows/<name>.jsonl``."""
    SOURCES[made.__name__] = made
    return made


def lines(name: str) -> list[str]:
    """The lines of a source."""
    return (HERE / "text" / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def _found(pattern: str, text: str) -> dict[str, str]:
    found = re.fullmatch(pattern, text)
    if found is None:
        raise ValueError(f"{text!r}: expected a line like {pattern}")
    return {key: value or "" for key, value in found.groupdict().items()}


def _row(
    fields: Mapping[str, Any],
    measured: Mapping[str, Any],
    group: Mapping[str, str],
    *,
    outlier: bool = False,
) -> Row:
    Setting(**fields)
    return {
        "row": dict(fields),
        "measured": dict(measured),
        "group": dict(group),
        "outlier": outlier,
    }


def _per_gpu(tokens: str, gib: str = "") -> dict[str, float]:
    measured = {"tokens_per_second_per_gpu": float(tokens)}
    return measured | ({"memory_gib": float(gib)} if gib else {})


MPT_GPUS = {
    "H": {"gpu": "H100-80"},
    "H8": {"gpu": "H100-80", "precision": "fp8"},
    "A80": {"gpu": "A100-80", "node_gbps": 1600.0},
    "A40": {"gpu": "A100-40", "node_gbps": 1600.0},
}
MPT_OUTLIERS = {("A80", "760m", 512), ("A80", "760m", 1024), ("A40", "1b", 32)}


@source
def mpt() -> Iterator[Row]:
    """llm-foundry's scripts/train/benchmarking/README.md: PyTorch FSDP, bf16, flash attention.

    Assumed: no compile; the network of the H100s is p5's (the source states the A100s' alone).
    """
    pattern = (
        r"(?P<s>\d+)/(?P<gpus>\d+)/(?P<micro>\d+)x(?P<accumulation>\d+)(?P<shard>[FG])(?P<c>c?)"
        r"=(?P<rate>\d+)"
    )
    for line in lines("mpt"):
        head, _, entries = line.partition(": ")
        gpu, model = head.split()
        for entry in entries.split():
            found = _found(pattern, entry)
            gpus, sequence = int(found["gpus"]), int(found["s"])
            fields = {
                **MPT_GPUS[gpu],
                **MPT[model],
                "gpus": gpus,
                "sequence": sequence,
                "micro_batch": int(found["micro"]),
                "accumulation": int(found["accumulation"]),
                "shard": "full" if found["shard"] == "F" else "gradients",
                "recompute": "full" if found["c"] else "none",
            }
            scale = gpus if gpus > 8 else sequence
            yield _row(
                fields,
                _per_gpu(found["rate"]),
                {"size": model, "gpu": gpu, "model": f"{gpu} {model} s{sequence}"},
                outlier=(gpu, model, scale) in MPT_OUTLIERS,
            )


VTRAIN = {
    "gpu": "A100-80",
    "gpus_per_node": 8,
    "node_gbps": 800.0,
    "precision": "fp16",
    "recompute": "full",
    "attention": "full",
    **MEGATRON,
}
VTRAIN_SIZES = {
    "3.6B": {"hidden": 3072, "heads": 32, "layers": 30, "batch": 512},
    "18.4B": {"hidden": 6144, "heads": 48, "layers": 40, "batch": 1024},
    "39.1B": {"hidden": 8192, "heads": 64, "layers": 48, "batch": 1536},
    "175B": {"hidden": 12288, "heads": 96, "layers": 96, "batch": 1536},
}


def _megatron_layout(found: Mapping[str, str], batch: int) -> dict[str, int]:
    tensor, data, pipeline, micro = (int(found[key]) for key in "tdpb")
    return {
        "gpus": tensor * data * pipeline,
        "tensor": tensor,
        "pipeline": pipeline,
        "micro_batch": micro,
        "accumulation": batch // (data * micro),
    }


@source
def vtrain_multi() -> Iterator[Row]:
    """vTrain's data/ground_truth_*.csv on many nodes: Megatron-DeepSpeed, A100, 1F1B.

    Assumed: Megatron's vocabulary of 51,200, tied; fp16; attention that keeps its scores and
    dropout of 0.1, as Megatron-DeepSpeed had in 2022.
    """
    pattern = r"(?P<t>\d+)\.(?P<d>\d+)\.(?P<p>\d+)b(?P<b>\d+)=(?P<seconds>[\d.]+)"
    for line in lines("vtrain_multi"):
        model, _, entries = line.partition(": ")
        for entry in entries.split():
            found = _found(pattern, entry)
            shape = dict(VTRAIN_SIZES[model])
            layout = _megatron_layout(found, shape.pop("batch"))
            yield _row(
                {**VTRAIN, **shape, "sequence": 2048, **layout},
                {"step_seconds": float(found["seconds"])},
                {"size": model, "gpu": "A80", "model": f"{model} {layout['gpus']}"},
            )


@source
def vtrain_single() -> Iterator[Row]:
    """The same on one node: 16 heads and 1,024 tokens a sample."""
    pattern = (
        r"(?P<t>\d+)\.(?P<d>\d+)\.(?P<p>\d+)B(?P<batch>\d+)b(?P<b>\d+)=(?P<milliseconds>[\d.]+)"
    )
    for line in lines("vtrain_single"):
        model, _, entries = line.partition(": ")
        shape = _found(r"h(?P<hidden>\d+) l(?P<layers>\d+)", model)
        for entry in entries.split():
            found = _found(pattern, entry)
            fields = {
                **VTRAIN,
                **{key: int(value) for key, value in shape.items()},
                "heads": 16,
                "sequence": 1024,
                **_megatron_layout(found, int(found["batch"])),
            }
            group = {
                "size": model,
                "gpu": "A80",
                "model": f"{model} {fields['gpus']} B{found['batch']}",
            }
            yield _row(fields, {"step_seconds": float(found["milliseconds"]) / 1000}, group)


@source
def korthikanti() -> Iterator[Row]:
    """Korthikanti et al. 2022, table 5: Megatron-LM on Selene (8 InfiniBand HDR a node)."""
    pattern = (
        r"(?P<model>\w+) (?P<gpus>\d+) GPUs t(?P<t>\d+) p(?P<p>\d+)(?: m(?P<m>\d+))?"
        r" B(?P<batch>\d+) b(?P<b>\d+) (?P<recompute>full|seq\+sel) = (?P<seconds>[\d.]+) s"
    )
    for line in lines("korthikanti"):
        found = _found(pattern, line)
        found["d"] = str(int(found["gpus"]) // (int(found["t"]) * int(found["p"])))
        selective = found["recompute"] != "full"
        fields = {
            **VTRAIN,
            "node_gbps": 1600.0,
            **MODELS[f"GPT3-{found['model']}"],
            "sequence": 2048,
            **_megatron_layout(found, int(found["batch"])),
            "interleave": int(found["m"] or 1),
            "sequence_parallel": selective,
            "recompute": "selective" if selective else "full",
        }
        yield _row(
            fields,
            {"step_seconds": float(found["seconds"])},
            {"size": found["model"], "gpu": "A80"},
        )


TITAN_FLAGS = {"SAC-op": "selective", "full-AC": "full", "full": "full", "none": "none"}


def _titan(text: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """Words of torchtitan's tables: FSDP8, TP8, PP8, CP2, b2, s8192, SAC-op, compile, fp8 …"""
    fields: dict[str, Any] = {"shard": "full", **base}
    degrees = {"FSDP": 1, "TP": 1, "PP": 1, "CP": 1}
    for word in re.split(r"[ +]", text):
        degree = re.fullmatch(r"(FSDP|TP|PP|CP|b|s)(\d+)", word)
        if degree and degree[1] in degrees:
            degrees[degree[1]] = int(degree[2])
        elif degree:
            fields[{"b": "micro_batch", "s": "sequence"}[degree[1]]] = int(degree[2])
        elif word in TITAN_FLAGS:
            fields["recompute"] = TITAN_FLAGS[word]
        elif word.startswith("fp8"):
            fields["precision"] = "fp8"
        elif word in ("compile", "AsyncTP"):
            fields["compile" if word == "compile" else "async_tp"] = True
        elif word not in ("eager", "bf16", "1F1B"):
            raise ValueError(f"{text!r}: nothing is known of {word!r}")
    fields["tensor"], fields["pipeline"] = degrees["TP"], degrees["PP"]
    fields["context"], fields["sequence_parallel"] = degrees["CP"], degrees["TP"] > 1
    if degrees["PP"] > 1:
        samples = fields["micro_batch"]
        fields["accumulation"] = min(degrees["PP"], samples)
        fields["micro_batch"] = samples // fields["accumulation"]
    fields.setdefault("gpus", degrees["FSDP"] * degrees["TP"] * degrees["PP"] * degrees["CP"])
    return fields


@source
def torchtitan_h100() -> Iterator[Row]:
    """torchtitan's benchmarks/*.md: Llama 3.1, FSDP2, on H100s of 96 GB and 500 W.

    Assumed: a pipeline cuts its local batch (b32, b8) into as many micro-batches as it has ranks,
    torchtitan's default of then; tensor parallelism comes with sequence parallelism, as there.
    """
    for line in lines("torchtitan_h100"):
        text, _, figures = line.partition(" = ")
        model, _, layout = text.partition(" ")
        fields = _titan(layout, {"gpu": "H100-96-500W", **MODELS[f"Llama3-{model}"]})
        group = {"size": model, "gpu": "H100-96-500W", "model": f"{model} {fields['gpus']}"}
        yield _row(fields, _per_gpu(*figures.split(", ")), group)


@source
def torchtitan_other() -> Iterator[Row]:
    """The same on 64 H200s, and an older FSDP2 on 64 A100s of 80 GB, not compiled.

    Assumed: torchtitan's default of recomputation (selective) on the H200s, where nothing is said;
    p4de's network for the A100s.
    """
    line = lines("torchtitan_h200")[0].removeprefix("8B 8 nodes H200 ")
    layout, _, figures = line.partition(" = ")
    fields = _titan(
        layout, {"gpu": "H200", "gpus": 64, "recompute": "selective", **MODELS["Llama3-8B"]}
    )
    yield _row(fields, _per_gpu(*figures.split(", ")), {"size": "8B", "gpu": "H200"})
    for line in lines("torchtitan_a100"):
        found = _found(r"(?P<model>\S+) (?P<layout>.*) = (?P<rate>\d+) .*", line)
        base = {"gpu": "A100-80", "gpus": 64, **MODELS[found["model"]]}
        group = {"size": found["model"], "gpu": "A100-80"}
        yield _row(_titan(found["layout"], base), _per_gpu(found["rate"]), group)


@source
def fms_fsdp() -> Iterator[Row]:
    """fms-fsdp's README: Llama 2, compiled, two samples of 4,096 tokens.

    Assumed: HSDP shards within a node of eight; the A100s' nodes have 1600 Gb/s
    (Vela), the H100s' those of p5.
    """
    pattern = (
        r"(?P<size>\w+) (?P<shard>HSDP|FSDP) (?P<recompute>no-AC|SAC), (?P<gpu>\S+) x(?P<gpus>\d+)"
        r" = (?P<rate>\d+)"
    )
    for line in lines("fms_fsdp"):
        found = _found(pattern, line)
        fields = {
            "gpu": {"H100": "H100-80"}.get(found["gpu"], found["gpu"]),
            "gpus": int(found["gpus"]),
            **({"node_gbps": 1600.0} if found["gpu"] == "A100-80" else {}),
            **MODELS[f"Llama2-{found['size']}"],
            "sequence": 4096,
            "micro_batch": 2,
            "shard": "full",
            "shard_degree": 8 if found["shard"] == "HSDP" else 0,
            "recompute": "none" if found["recompute"] == "no-AC" else "selective",
            "compile": True,
        }
        yield _row(fields, _per_gpu(found["rate"]), {"size": found["size"], "gpu": found["gpu"]})


@source
def aws() -> Iterator[Row]:
    """aws-samples/awsome-distributed-training: torchtitan's default on four p5.48xlarge."""
    for line in lines("aws"):
        text, _, figures = line.partition(" = ")
        layout = text.removeprefix("torchtitan Llama3-8B 4 x p5.48xlarge ")
        fields = _titan(layout, {"gpu": "H100-80", **MODELS["Llama3-8B"]})
        yield _row(fields, _per_gpu(*figures.split(", ")), {"size": "8B", "gpu": "H100-80"})


NEMO_MODELS = {
    **{name.upper(): fields for name, fields in MODELS.items()},
    "LLAMA3.1-405B": MODELS["Llama3-405B"],
}
NEMO = (
    r"(?:[\d.]+(?P<sft>-SFT)? )?(?P<model>[\w.-]+?)(?P<fsdp>\(FSDP8\))?(?P<tuning>-SFT|-LoRA)?"
    r" n(?P<gpus>\d+) gbs(?P<batch>\d+)"
    r" mbs(?P<b>\d+) s(?P<s>\d+) t(?P<t>\d+) p(?P<p>\d+) c(?P<c>\d+) v(?P<v>\d+|-) = (?P<rate>\d+)"
    r" \((?P<tflops>\d+)\)"
)


def _nemo(name: str) -> Iterator[Row]:
    for line in lines(name):
        found = _found(NEMO, line)
        tensor, pipeline, context = int(found["t"]), int(found["p"]), int(found["c"])
        data = int(found["gpus"]) // (tensor * pipeline * context)
        fields = {
            "gpu": "H100-80",
            "gpus": int(found["gpus"]),
            **NEMO_MODELS[found["model"].replace("_", "-").upper()],
            "sequence": int(found["s"]),
            "micro_batch": int(found["b"]),
            "accumulation": max(1, int(found["batch"]) // (data * int(found["b"]))),
            "tensor": tensor,
            "sequence_parallel": tensor > 1,
            "pipeline": pipeline,
            "interleave": 1 if found["v"] == "-" else int(found["v"]),
            "context": context,
            "shard": "full" if found["fsdp"] else "optimizer",
            "precision": "fp8",
            **({"lora_rank": 16} if found["tuning"] == "-LoRA" else {}),
        }
        group = {"size": found["model"], "gpu": "H100-80"}
        yield _row(fields, _per_gpu(found["rate"]), group)


@source
def nemo() -> Iterator[Row]:
    """NeMo 24.07 on DGX-H100, fp8 (docs/source/performance/performance_summary.md).

    Assumed: no recomputation, a distributed optimizer, sequence parallelism where there is tensor
    parallelism, LoRA of rank 16.
    """
    return _nemo("nemo")


@source
def megatron_bridge() -> Iterator[Row]:
    """Megatron-Bridge on DGX-H100, fp8 (docs/performance-summary-archive.md); assumed as NeMo."""
    return _nemo("megatron_bridge")


@source
def llama3_405b() -> Iterator[Row]:
    """Llama 3's own training, as glennklockwood.com/garden/llama-3.1 has it after SC24.

    Assumed: TFLOP/s count 6N + 12·L·h·s a token; batches of 16 × 2²⁰ tokens; one sample a
    micro-batch; a stage of a pipeline rank for each of its layers (Grattafiori et al. 2024, 3.3.2).
    """
    pattern = (
        r"(?P<gpus>\d+) GPUs TP(?P<t>\d+) CP(?P<c>\d+) PP(?P<p>\d+) s(?P<s>\d+) 16M.*"
        r" = (?P<tflops>\d+)"
    )
    for line in lines("llama3_405b"):
        found = {key: int(value) for key, value in _found(pattern, line).items()}
        data = found["gpus"] // (found["t"] * found["c"] * found["p"])
        fields = {
            "gpu": "H100-80",
            "gpus": found["gpus"],
            **MODELS["Llama3-405B"],
            "sequence": found["s"],
            "accumulation": 16 * 2**20 // found["s"] // data,
            "tensor": found["t"],
            "sequence_parallel": True,
            "context": found["c"],
            "pipeline": found["p"],
            "interleave": 8,
            "shard": "gradients",
        }
        operations = 6 * 403.8e9 + 12 * 126 * 16384 * found["s"]
        rate = found["tflops"] * 1e12 / operations
        yield _row(
            fields,
            {"tokens_per_second_per_gpu": round(rate, 2)},
            {"size": "405B", "gpu": "H100-80"},
        )


SIMUMAX = {"70b": ("Llama3-70B", 12), "405b": ("Llama3-405B", 4)}


@source
def simumax() -> Iterator[Row]:
    """SimuMax v1.2's docs/b200: Llama 3's widths with the layers cut, 8 B200.

    Assumed: no recomputation, sequence parallelism where there is tensor parallelism.
    """
    pattern = (
        r"(?P<model>\w+) l(?P<layers>\d+) t(?P<t>\d+) p(?P<p>\d+) d(?P<d>\d+)(?: c(?P<c>\d+))?"
        r"(?: s(?P<s>\d+))? m(?P<m>\d+): (?P<ms>\d+) (?P<gib>[\d.]+)"
    )
    for line in lines("simumax"):
        found = _found(pattern, line)
        name, layers = SIMUMAX[found["model"]]
        tensor, pipeline, data = int(found["t"]), int(found["p"]), int(found["d"])
        context = int(found["c"] or 1)
        fields = {
            "gpu": "B200",
            "gpus": tensor * pipeline * data * context,
            **MODELS[name],
            "layers": layers,
            "sequence": int(found["s"] or 4096),
            "accumulation": int(found["m"]),
            "tensor": tensor,
            "sequence_parallel": tensor > 1,
            "pipeline": pipeline,
            "context": context,
            "shard": "optimizer",
            "gradient_dtype": "fp32",
        }
        measured = {"step_seconds": int(found["ms"]) / 1000, "memory_gib": float(found["gib"])}
        group = {"size": found["model"], "gpu": "B200", "model": f"{found['model']} m{found['m']}"}
        yield _row(fields, measured, group)


def read(names: tuple[str, ...] = ()) -> dict[str, list[Row]]:
    """Source → its rows, as ``rows/`` has them; of all sources there, or of ``names``."""
    files = [ROWS / f"{name}.jsonl" for name in names] or sorted(ROWS.glob("*.jsonl"))
    return {
        file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in files
    }


def main() -> None:
    """Write the rows of each source."""
    for name, made in SOURCES.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made())
        whole_file.write(ROWS / f"{name}.jsonl", text)


if __name__ == "__main__":
    main()
