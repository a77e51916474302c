"""One JSON file with every figure."""

import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.shards.figures import Section
from benchmarks.shards.report import machine

LIBRARIES = ("torch", "numpy", "accelerate", "lightning", "transformers", "deepspeed")


def write_json(path: Path, sections: Sequence[Section], setting: dict[str, Any]) -> None:
    """All figures of the run, the machine and the libraries."""
    content = {
        "machine": machine(),
        "versions": versions(),
        "setting": setting,
        "targets": [target.data() for section in sections for target in section.targets],
        "sections": {section.name: section.data for section in sections},
    }
    path.write_text(json.dumps(content, indent=1))


def versions() -> dict[str, str]:
    """Of the libraries that are installed here."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
