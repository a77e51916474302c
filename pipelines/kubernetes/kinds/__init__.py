"""The kinds of manifests that a training can be exported as.

A kind is a module here with a function under ``@kind("name")``: (training, cluster) → documents.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from pipelines.kubernetes.pod import Cluster, Fields
from pipelines.kubernetes.training_spec import Training

Export = Callable[[Training, Cluster], list[Fields]]
KINDS: dict[str, Export] = {}


def kind(name: str) -> Callable[[Export], Export]:
    """Register a function that creates the documents of ``--to name``."""

    def register(export: Export) -> Export:
        KINDS[name] = export
        return export

    return register


for _path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    import_module(f"{__name__}.{_path.stem}")
