"""Modules that the ranks' fork server imports once; no rank has to collect them as garbage."""

import importlib

from trainyard.common.process import exclude_from_gc

MODULES = [
    *("steps.train.job", "training.loop", "training.export.artifact", "training.strategies.mesh"),
    *("training.workloads.language_model.workload", "torch.distributed.pipelining"),
    "training.strategies.ddp",
    "torch.distributed.checkpoint",  # FSDP2 imports it when it shards
    *("training.session", "training.watching.trackers"),
    *("training.watching.watchdog", "training.workloads.simple", "pyarrow.compute", "mimetypes"),
]

with exclude_from_gc():
    for name in MODULES:
        importlib.import_module(name)
