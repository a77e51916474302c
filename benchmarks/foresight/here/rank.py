"""One rank of a real training, which ends after its last step and leaves what the steps took.

python -m benchmarks.foresight.here.rank OUT ARGUMENTS…    (those of steps/train/job.py)

The job is the one that runs in the cloud; only its end, where it would validate, save and export,
is left out. OUT gets a line of JSON: the CPU seconds of each step, user and system, of all the
process's threads; and the most memory that was resident.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from steps.train import job
from training.devices import peak_memory
from training.loop import Loop
from trainyard.common import whole_file


def main() -> None:
    out, arguments = Path(sys.argv[1]), sys.argv[2:]
    noted: list[float] = []
    make = Loop._train_step

    def step(self: Loop, *given: Any) -> None:
        began = time.process_time()
        make(self, *given)
        noted.append(time.process_time() - began)

    def end(self: Loop, *given: Any) -> None:
        if self.step == self.config.max_steps:
            said = {"cpu_seconds": noted, "peak_bytes": int(peak_memory(torch.device("cpu")) * 1e6)}
            whole_file.write(out, json.dumps(said).encode())
            if dist.is_initialized():
                dist.barrier()  # nobody leaves while another one's last step needs it
            os._exit(0)

    Loop._train_step, Loop._after_step = step, end  # type: ignore[method-assign]
    job.main(arguments)


if __name__ == "__main__":
    main()
