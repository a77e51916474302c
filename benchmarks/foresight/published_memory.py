"""The published peaks of memory, and what ran out of it, as rows of Settings.

python -m benchmarks.foresight.published_memory          # writes their rows/*.jsonl anew

``published`` has the sources that state a time and a peak together, torchtitan's and SimuMax's.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.foresight.models import LLAMA, MODELS
from benchmarks.foresight.published import ROWS, Row, _found, _row, lines
from trainyard.common import whole_file

GB = 1e9 / 2**30
"""GiB."""

LITGPT: Mapping[str, Mapping[str, Any]] = {
    "phi-1.5 1.3B": {
        "layers": 24,
        "hidden": 2048,
        "heads": 32,
        "ffn": 8192,
        "vocab": 51200,
        "sequence": 1044,
    },
    "StableLM 3B": {
        "layers": 16,
        "hidden": 4096,
        "heads": 32,
        "ffn": 16384,
        "vocab": 50688,
        "sequence": 1044,
    },
    "Llama2 7B": {**MODELS["Llama2-7B"], "sequence": 1304},
    "Llama2 13B": {**MODELS["Llama2-13B"], "sequence": 1304},
}
QWEN_32B = {
    **LLAMA,
    "layers": 64,
    "hidden": 5120,
    "heads": 40,
    "kv_heads": 8,
    "ffn": 27648,
    "vocab": 152064,
}
ADAPTERS = {"master": False, "lora_rank": 8}


def litgpt() -> Iterator[Row]:
    """litgpt's tutorials/resource-tables.md: LoRA on one A100-40, bf16-true, peak allocated.

    Assumed: litgpt's defaults, adapters on queries and values with dropout of 0.05; the longest
    sample sets the peak; StableLM is Alpha's shape, whose weights fill what is measured.
    """
    pattern = (
        r"(?P<model>.+) (?P<quantization>none|nf4) (?P<b>\d+): "
        r"(?:(?P<gb>[\d.]+) GB .*|(?P<oom>OOM))"
    )
    for line in lines("litgpt"):
        found = _found(pattern, line)
        fields = {
            "gpu": "A100-40",
            **LITGPT[found["model"]],
            **ADAPTERS,
            "dropout": 0.05,
            "quantization": found["quantization"],
            "micro_batch": int(found["b"]),
        }
        peak = {"oom": True} if found["oom"] else {"memory_gib": float(found["gb"]) * GB}
        yield _row(fields, peak, {"size": found["model"], "gpu": "A100-40"})


TORCHTUNE: Mapping[str, Mapping[str, Any]] = {
    "full 1x4090": {"optimizer": "adamw_8bit", "offload": "optimizer", "recompute": "full"},
    "LoRA 1x4090": {"lora_rank": 8, "recompute": "full"},
    "LoRA 1xA6000": {"lora_rank": 8},
    "full 8xA100*": {"shard": "full", "offload": "all", "recompute": "full"},
    "QLoRA 8xA100": {
        "shard": "full",
        "lora_rank": 16,
        "quantization": "nf4",
        "recompute": "full",
    },
}
CARDS = {"4090": "RTX4090", "A6000": "A6000", "A100": "A100-80"}


def torchtune() -> Iterator[Row]:
    """torchtune's README: weights in 16 bits alone, two packed samples of 2,048 tokens, compiled.

    Assumed: its recipes' choices (a paged 8-bit optimizer inside the backward pass on one card,
    which is an offloaded one here; CPU offload of the 70B), and recomputation but on the A6000,
    whose peak is twice that of the same training on the smaller card.
    """
    pattern = (
        r"(?P<model>\S+) (?P<kind>\S+ (?P<gpus>\d)x(?P<gpu>\w+)\*?): (?P<gib>[\d.]+) GiB, "
        r"(?P<rate>\d+) tok/s"
    )
    for line in lines("torchtune"):
        found = _found(pattern, line)
        fields = {
            "gpu": CARDS[found["gpu"]],
            "gpus": int(found["gpus"]),
            **MODELS[found["model"].replace("Llama3.1", "Llama3")],
            "sequence": 2048,
            "micro_batch": 2,
            "master": False,
            "compile": True,
            **TORCHTUNE[found["kind"]],
        }
        peak = {"memory_gib": float(found["gib"])}
        yield _row(fields, peak, {"size": found["model"], "gpu": fields["gpu"]})


MACHINES: Mapping[str, Mapping[str, Any]] = {
    "ml.g5.4xlarge": {"gpu": "A10G"},
    "ml.g5.12xlarge": {"gpu": "A10G", "gpus": 4, "shard": "full"},
    "ml.g5.24xlarge": {"gpu": "A10G", "gpus": 4, "shard": "full"},
    "ml.p4d.24xlarge": {"gpu": "A100-40", "gpus": 8, "shard": "full"},
    "ml.p4de.24xlarge": {"gpu": "A100-80", "gpus": 8, "shard": "full"},
    "8 x A6000": {"gpu": "A6000", "gpus": 8, "shard": "full"},
}


def verdicts() -> Iterator[Row]:
    """What people have said that it fitted, or did not.

    Assumed: 16-bit weights, recomputation, FSDP where there are several devices; the samples'
    length and number where an issue states none (the first two state them).
    """
    pattern = (
        r".*: (?P<kind>QLoRA|LoRA) (?P<model>\S+) b(?P<b>\d+) s(?P<s>\d+) on (?P<machine>.+): "
        r"(?P<verdict>fits|OOM)"
    )
    for line in lines("verdicts"):
        found = _found(pattern, line)
        fields = {
            **MACHINES[found["machine"]],
            **({"Qwen2.5-32B": QWEN_32B} | dict(MODELS))[found["model"]],
            **ADAPTERS,
            "quantization": "nf4" if found["kind"] == "QLoRA" else "none",
            "recompute": "full",
            "micro_batch": int(found["b"]),
            "sequence": int(found["s"]),
        }
        oom = {"oom": found["verdict"] == "OOM"}
        yield _row(fields, oom, {"size": found["model"], "gpu": fields["gpu"]})


SOURCES: tuple[Callable[[], Iterator[Row]], ...] = (litgpt, torchtune, verdicts)


def main() -> None:
    """Write the rows of each source."""
    for made in SOURCES:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made())
        whole_file.write(ROWS / f"{made.__name__}.jsonl", text)


if __name__ == "__main__":
    main()
