"""What the fork server of the ranks imports, once: none of it is garbage to any of them."""

import importlib

from trainyard.common.uncollected import uncollected

MODULES = [
    *("steps.train.job", "training.loop", "training.artifact", "training.strategies.mesh"),
    *("training.workloads.language_model.workload", "torch.distributed.pipelining"),
    *("training.health.check", "training.strategies.ddp"),
    "torch.distributed.checkpoint",  # FSDP2 imports it when it shards
    *("training.session", "training.trackers", "training.reports", "training.trackers"),
    *("training.watchdog", "training.workloads.simple", "pyarrow.compute", "mimetypes"),
]

with uncollected():
    for name in MODULES:
        importlib.import_module(name)
