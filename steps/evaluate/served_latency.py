"""Time requests to an inference script, in a process of its own: prints nothing, writes a JSON.

python -P served_latency.py MODEL_FOLDER REQUEST_FILE CONTENT_TYPE ACCEPT OUT

The script lies in the archive as code/inference.py. Only the standard library is
imported, since the process is the script's.
"""

import json
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from steps.evaluate.latency import REQUESTS, WARM, quietest, time_round
from steps.evaluate.served_script import Served
from trainyard.common.usable_cores import cores


def measured(model: Path, request: bytes, content_type: str, accept: str) -> dict[str, Any]:
    """Return the latency for evaluation.json: from a request's bytes to the answer's.

    Raises:
        AttributeError: the script lacks a function.
    """
    served = Served(model / "code/inference.py", model)
    text = "json" in content_type or content_type.startswith("text/")  # the toolkits decode these
    body = request.decode() if text else request

    def answer(number: int) -> float:
        began = time.perf_counter()
        served.answer(body, content_type, accept)
        return time.perf_counter() - began

    time_round(answer, WARM)
    best, rounds = quietest(lambda: time_round(answer, REQUESTS))
    shares = quantiles(best.seconds, n=100, method="inclusive")
    return {
        "p50_ms": shares[49] * 1000,
        "p95_ms": shares[94] * 1000,
        "samples": REQUESTS,
        "device": "as inference.py chose",
        "threads": cores(),
        "waited_share": best.waited_share,
        "busy": best.busy,
        "rounds": rounds,
    }


if __name__ == "__main__":
    folder, file, kind, accepted, out = sys.argv[1:]
    found = measured(Path(folder), Path(file).read_bytes(), kind, accepted)
    Path(out).write_text(json.dumps(found), encoding="utf-8")
