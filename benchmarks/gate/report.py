"""One JSON file with every figure."""

import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gate.setting import Setting
from benchmarks.shards.figures import Section
from benchmarks.shards.report import machine

LIBRARIES = ("numpy", "pyarrow", "scipy")


def write_json(path: Path, sections: Sequence[Section], setting: Setting) -> None:
    """All figures of the run, the machine and the libraries."""
    sizes = ("pairs", "groups", "examples", "rounds")
    content = {
        "machine": machine(),
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "setting": {name: getattr(setting, name) for name in sizes},
        "targets": [target.data() for section in sections for target in section.targets],
        "sections": {section.name: section.data for section in sections},
    }
    path.write_text(json.dumps(content, indent=1))
