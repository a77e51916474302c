"""``python tests/fakes/job.py ARGS...``: the train job where the fakes can be imported."""

import torch

from steps.train import job
from tests.fakes import install

if __name__ == "__main__":
    install()
    torch.set_num_threads(1)
    job.main()
