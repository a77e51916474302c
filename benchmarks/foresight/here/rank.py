"""One rank of a real training, which ends after its last step and leaves what the steps took.

The job is the one that runs in the cloud; only its end, where it would validate, save and export,
is left out.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from steps.train import job
from training.devices import peak_memory
from training.loop import Loop
from trainyard.common import whole_file


def train(arguments: Sequence[str], environment: Mapping[str, str], out: Path, log: Path) -> None:
    """Run steps/train/job.py with these arguments, and end the process.

    ``out`` gets JSON: ``cpu_seconds`` of each step, user and system, of all the process's threads,
    and ``peak_bytes``, the most memory that was resident.
    """
    os.nice(10)
    os.environ.update(environment)
    torch.set_num_threads(1)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    noted: list[float] = []
    make = Loop._train_step

    def step(self: Loop, *given: Any) -> None:
        began = time.process_time()
        make(self, *given)
        noted.append(time.process_time() - began)

    def end(self: Loop, *given: Any) -> None:
        if self.step == self.config.max_steps:
            peak = peak_memory(torch.device("cpu")) * 1e6
            whole_file.write(out, json.dumps({"cpu_seconds": noted, "peak_bytes": peak}).encode())
            if dist.is_initialized():
                dist.barrier()  # nobody leaves while another one's last step needs it
            os._exit(0)

    Loop._train_step, Loop._after_step = step, end  # type: ignore[method-assign]
    job.main([*arguments])
