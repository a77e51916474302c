"""``python -m tests.fakes.job ARGS...``: the train job where the fakes can be imported."""

import sys
from pathlib import Path

import torch

FAKES = Path(__file__).parent

if __name__ == "__main__":
    sys.path.insert(0, str(FAKES))
    torch.__path__.append(str(FAKES / "smp"))  # SMP's images have sagemaker inside of torch
    torch.set_num_threads(1)
    from steps.train import job

    job.main()
