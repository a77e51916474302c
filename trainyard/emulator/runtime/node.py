"""One node of a job: its directory, which the job sees as ``/opt/ml``, and its environment."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.emulator.runtime.interpreter import OWN

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
PROCESSOR = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")
"""Variables that hold PyTorch and its libraries to fewer instructions than the processor has."""


@dataclass(slots=True)
class Node:
    """``name`` is SageMaker's (``algo-1``); ``root`` holds ``ml/`` (= /opt/ml) and ``home/``.

    ``python`` stands in for the image.
    """

    name: str
    root: Path
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    python: Path = OWN

    @property
    def ml(self) -> Path:
        return self.root / "ml"

    @property
    def home(self) -> Path:
        return self.root / "home"

    def inside(self, path: str) -> Path:
        """The file of this machine that the job sees as ``path``, e.g. ``/opt/ml/model``.

        Raises ValueError when that is outside ``/opt/ml``.
        """
        target = Path(os.path.normpath(path))
        return self.ml / target.relative_to("/opt/ml")

    def make_directories(self, *paths: str) -> None:
        self.home.joinpath("tmp").mkdir(parents=True, exist_ok=True)
        for path in paths:
            self.inside(path).mkdir(parents=True, exist_ok=True)


def host_names(count: int) -> list[str]:
    return [f"algo-{number}" for number in range(1, count + 1)]


def base_environment(region: str, nodes: int, python: Path = OWN) -> dict[str, str]:
    """What every container has, before the job's own Environment.

    Nothing of the user's own environment comes in: no credentials, no HOME, no virtual
    environment but the interpreter ``python``, whose folder is first on PATH; only what makes this
    machine's processor a lesser one.

    The nodes share this machine's cores, so each one's OpenMP may have its share of them: by the
    job's own nodes, since results differ in their last digits with the number of threads, and must
    not with what else runs. Another job, or another emulator, may run nevertheless. So a thread
    that waits for its team sleeps: the default is to spin, which keeps the very thread that it
    waits for from its core, and made work on a shared machine some 20 times slower. On quiet cores
    sleeping costs 7 % of a batch of 16 small samples, and of a single one all that a second thread
    wins. OpenBLAS, which NumPy and SciPy bring, has threads of its own that cannot be put to sleep:
    it gets one.
    """
    return {name: os.environ[name] for name in PROCESSOR if name in os.environ} | {
        "PATH": f"{python.parent}:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",  # or a script's log arrives only at its end
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",  # boto3 would wait for a metadata service
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "OMP_NUM_THREADS": str(max(1, cores() // nodes)),
        "OMP_WAIT_POLICY": "passive",
        "OPENBLAS_NUM_THREADS": "1",
    }


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
