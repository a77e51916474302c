"""One rank of a training whose host reads are counted; runs in the checkout that is measured.

python rank.py CHECKOUT READS FILE ARGUMENTS...
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

STEPS = (4, 5)
"""From 1: neither logged, validated nor saved, and not the first, which has more to look at."""


def watch(reads_module: Any, file: Path, *, forbidden: bool = False) -> None:
    """Have ``Loop``'s steps 4 and 5 write to ``file`` what they read, as JSON."""
    from training.loop import Loop

    train_step, found = Loop._train_step, []

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        if self.step + 1 not in STEPS:
            return train_step(self, *given, **named)
        reads = reads_module.HostReads(forbidden=forbidden)
        model, units = self.strategy.model, self.workload.units

        def counted(batch: Any) -> Any:
            reads.put(batch.values())
            return units(batch)

        self.workload.units = counted  # a step's first look at its batches
        reads.put([*model.parameters(), *model.buffers()])
        try:
            with reads:
                return train_step(self, *given, **named)
        finally:
            self.workload.units = units
            found.append([[read.what, read.where] for read in reads.found])
            file.write_text(json.dumps(found))

    Loop._train_step = watched


def main(checkout: str, reads: str, file: str, *arguments: str) -> None:
    """The train job of the checkout, watched."""
    sys.path[0] = checkout
    specification = importlib.util.spec_from_file_location("host_reads", reads)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["host_reads"] = module
    specification.loader.exec_module(module)
    watch(module, Path(file))
    from steps.train import job

    job.main(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
