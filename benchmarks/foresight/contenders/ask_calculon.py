"""Calculon's seconds for a step of each row on the standard input; null where it has no answer.

It has Megatron's layouts of GPT's shape, without the vocabulary, on A100s of 80 GB; the network of
its system file is set to the row's.
"""

import json
import logging
import sys
from pathlib import Path

from calculon.llm import Llm, System

RECOMPUTED = {"none": "none", "selective": "attn_only", "full": "full"}


def seconds(row: dict, system: dict) -> float | None:
    """Of a step; None for a row that is beyond it."""
    if row["gpu"] != "A100-80" or row["gated"] or row["shard"] not in ("none", "optimizer"):
        return None
    tensor, pipeline = row["tensor"], row["pipeline"]
    data = row["gpus"] // (tensor * pipeline)
    application = {
        "hidden": row["hidden"],
        "feedforward": 4 * row["hidden"],
        "seq_size": row["sequence"],
        "attn_heads": row["heads"],
        "attn_size": row["hidden"] // row["heads"],
        "num_blocks": row["layers"],
    }
    execution = {
        "num_procs": row["gpus"],
        "tensor_par": tensor,
        "pipeline_par": pipeline,
        "data_par": data,
        "tensor_par_net": int(tensor > 8),
        "pipeline_par_net": int(tensor * data >= 8),
        "data_par_net": int(row["gpus"] > 8),
        "batch_size": data * row["micro_batch"] * row["accumulation"],
        "microbatch_size": row["micro_batch"],
        "datatype": "float16",
        "fused_activation": False,
        "attention_type": "multihead",
        "activation_recompute": RECOMPUTED[row["recompute"]],
        "pipeline_interleaving": row["interleave"],
        "optimizer_sharding": row["shard"] == "optimizer",
        "tensor_par_comm_type": "rs_ag" if row["sequence_parallel"] else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": row["sequence_parallel"] and row["recompute"] != "full",
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    system["networks"][1]["bandwidth"] = row["node_gbps"] / 8 / 8
    try:
        machine = System(system)
        model = Llm(Llm.Application(application), logging.getLogger())
        model.compile(machine, Llm.Execution.from_json(execution))
        model.run(machine)
        return model.get_stats_json(False)["total_time"]
    except (AssertionError, Llm.Error):
        return None


def main() -> None:
    system = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for line in sys.stdin:
        print(json.dumps(seconds(json.loads(line), system)), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
