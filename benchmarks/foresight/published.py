"""The published measurements, as rows/README.md says where each is from."""

import json
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parent / "rows"
Row = dict[str, Any]
"""``row``: fields of a Setting; ``measured``; ``group``: what a fold of cross-validation leaves
out; ``outlier``: whether the source itself calls the figure one."""

TIMES = (
    "mpt",
    "vtrain_multi",
    "vtrain_single",
    "korthikanti",
    "torchtitan_h100",
    "torchtitan_other",
    "fms_fsdp",
    "aws",
    "nemo",
    "megatron_bridge",
    "llama3_405b",
    "simumax",
)
"""The sources that state times."""


def read(names: tuple[str, ...] = ()) -> dict[str, list[Row]]:
    """Source → its rows, as ``rows/`` has them; of all sources there, or of ``names``."""
    files = [ROWS / f"{name}.jsonl" for name in names] or sorted(ROWS.glob("*.jsonl"))
    return {
        file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in files
    }
