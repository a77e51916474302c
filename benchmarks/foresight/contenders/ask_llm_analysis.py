"""llm-analysis' seconds for a step of each row on the standard input; null where it has no answer.

Its user supplies the share of the peak that is reached; here it is 1, and whoever asks divides.
"""

import json
import sys

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import (
    ModelConfig,
    ParallelismConfig,
    get_dtype_config_by_name,
    get_gpu_config_by_name,
)
from llm_analysis.logger import logger

GPUS = {"A100-40": "a100-sxm-40gb", "A100-80": "a100-sxm-80gb", "H100-80": "h100-sxm-80gb"}
RECOMPUTED = {"none": 0, "selective": 1, "full": 2}
SHARED = {"none": 0, "optimizer": 1, "gradients": 2, "full": 3}


def seconds(row: dict) -> float | None:
    """Of a step; None for a row that is beyond it."""
    if row["gpu"] not in GPUS or row["precision"] not in ("bf16", "fp16") or row["lora_rank"]:
        return None
    model = ModelConfig(
        name="row",
        num_layers=row["layers"],
        n_head=row["heads"],
        hidden_dim=row["hidden"],
        vocab_size=row["vocab"],
        max_seq_len=row["sequence"],
        num_key_value_heads=row["kv_heads"] or row["heads"],
        ffn_embed_dim=row["ffn"] or 4 * row["hidden"],
        expansion_ratio=(row["ffn"] or 4 * row["hidden"]) / row["hidden"],
    )
    data = row["gpus"] // (row["tensor"] * row["pipeline"])
    try:
        analysis = LLMAnalysis(
            model,
            get_gpu_config_by_name(GPUS[row["gpu"]]),
            get_dtype_config_by_name("w16a16e16"),
            ParallelismConfig(
                tp_size=row["tensor"], pp_size=row["pipeline"], dp_size=data, sp_size=row["tensor"]
            ),
            flops_efficiency=1,
        )
        return analysis.training(
            batch_size_per_gpu=row["micro_batch"],
            gradient_accumulation_steps=row["accumulation"],
            seq_len=row["sequence"],
            activation_recomputation=ActivationRecomputation(RECOMPUTED[row["recompute"]]),
            ds_zero=DSZeRO(SHARED[row["shard"]]),
            flash_attn=row["attention"] != "full",
            mlp_gated_linear_units=row["gated"],
        )["latency_per_iter"]
    except (AssertionError, ValueError, TypeError):
        return None


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(seconds(json.loads(line))), flush=True)


if __name__ == "__main__":
    logger.setLevel("CRITICAL")
    main()
