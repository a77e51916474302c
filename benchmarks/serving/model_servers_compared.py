"""Run the contenders: TorchServe with AWS's toolkit, as AWS's PyTorch image starts it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from benchmarks.measured_process import free_ports
from steps.register.config import SERVING

STARTING = 300.0  # seconds that a server may take until its model is loaded, on a busy machine
CONFIGURE = """
import sys
from sagemaker_pytorch_serving_container import handler_service, torchserve
open(sys.argv[1], "w").write(torchserve._generate_ts_config_properties(handler_service.__file__))
print(torchserve.DEFAULT_TS_LOG_FILE)
"""
"""Writes what the image's ``serve`` writes to /etc/sagemaker-ts.properties."""
LOOPED = """

def model_fn(model_dir):
    return open_served(Path(model_dir))
"""
"""End of an inference.py that leaves the toolkit's Transformer as it is."""
ADDRESSES = ("inference_address", "management_address", "metrics_address")
PORTS = ("grpc_inference_port", "grpc_management_port")


@dataclass(frozen=True, slots=True)
class Contender:
    """A model behind a server."""

    name: str
    environment: Mapping[str, str]
    """What the model package says, beside the entry point."""
    ending: str = ""
    """Appended to the artifact's inference.py."""


AWS = Contender("AWS's toolkit as it comes", {}, LOOPED)
PASSIVE = Contender(
    "the toolkit, threads wait passively", {"OMP_WAIT_POLICY": SERVING["OMP_WAIT_POLICY"]}, LOOPED
)
OURS = Contender("Trainyard's package", SERVING)
CONTENDERS = (
    AWS,
    PASSIVE,
    Contender("and in TorchServe's batches", SERVING, LOOPED),
    OURS,
)


@dataclass(frozen=True, slots=True)
class Server:
    """A running contender."""

    port: int
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """Processor time of the server and its workers so far."""
        family = [self.process, *self.process.children(recursive=True)]
        return sum(sum(each.cpu_times()[:2]) for each in family)


@contextmanager
def running(
    contenders: tuple[Contender, ...], artifact: Path, folder: Path, engine: Path
) -> Iterator[dict[str, Server]]:
    """Serve the artifact by all contenders; ``engine``: an interpreter that has TorchServe."""
    with ExitStack() as stack:
        yield {
            one.name: stack.enter_context(_started(one, artifact, folder / str(number), engine))
            for number, one in enumerate(contenders)
        }


@contextmanager
def _started(contender: Contender, artifact: Path, folder: Path, engine: Path) -> Iterator[Server]:
    model, code = folder / "model", folder / "model/code"
    shutil.copytree(artifact, model)
    (code / "requirements.txt").unlink(missing_ok=True)  # the engine has them
    with (code / "inference.py").open("a") as script:
        script.write(contender.ending)
    port, *others = free_ports(5)
    for name in ("tmp", "store", "logs"):
        (folder / name).mkdir()
    environment = {
        **os.environ,
        "PATH": f"{engine.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(code),
        "TMPDIR": str(folder / "tmp"),
        "LOG_LOCATION": str(folder / "logs"),
        "METRICS_LOCATION": str(folder / "logs"),
        "SAGEMAKER_BASE_DIR": str(folder),
        "SAGEMAKER_PROGRAM": "inference.py",
        "SAGEMAKER_BIND_TO_PORT": str(port),
        **contender.environment,
    }
    settings = folder / "ts.properties"
    command = [engine, "-c", CONFIGURE, settings]
    logging = subprocess.check_output(command, env=environment, text=True).splitlines()[-1]
    lines = settings.read_text().splitlines()
    kept = [line for line in lines if "_address=" not in line]
    for way, number in zip(ADDRESSES, (port, *others[:2]), strict=True):
        kept.append(f"{way}=http://127.0.0.1:{number}")
    kept += [f"{way}={number}" for way, number in zip(PORTS, others[2:], strict=True)]
    settings.write_text("\n".join(kept))
    serve = [engine.parent / "torchserve", "--start", "--foreground", "--model-store",
             folder / "store", "--ts-config", settings, "--log-config", logging,
             "--models", f"model={model}"]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(serve, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        _wait(process, port, folder / "log")
        yield Server(port, psutil.Process(process.pid))
    finally:
        for each in [*psutil.Process(process.pid).children(recursive=True)]:
            each.send_signal(signal.SIGTERM)
        process.terminate()
        process.wait(60)


def _wait(process: subprocess.Popen, port: int, log: Path) -> None:
    """Wait until /ping says that the workers have loaded the model."""
    end = time.monotonic() + STARTING
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/ping", timeout=5) as answer:
                if b"Healthy" in answer.read():
                    return
        except (URLError, OSError):
            pass
        time.sleep(0.5)
    sys.stderr.write(log.read_text()[-3000:])
    raise RuntimeError("TorchServe has not loaded the model")
