"""Show on one GPU, in at most ten minutes, what the rest of the project shows on processors.

python -m benchmarks.gpu [--only curves,mfu] [--minutes 10] [--json FILE]
python -m benchmarks.gpu --smoke        # every section on tiny shapes, on any machine: does it run?

Each section has a process of its own, and its share of the minutes (in brackets, of 10 on an
H200): kernels that a step used (1:00), waits of the host (0:45), loss curves beside the processor's
(2:30), memory beside its forecasts (1:50), MFU beside a loop written by hand (3:50). What a section
leaves goes to the next ones. One that fails, or is out of time, is reported with what it has found.
Prints the findings and the rows for the documents. Exits with 1 if a section failed or a limit was
missed; without a GPU and ``--smoke`` it says so, and exits with 0.
"""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.gpu.document_rows import rows
from benchmarks.gpu.findings import Finding, Frame, Outcome
from benchmarks.harness import CHECKOUT, JsonFile, chosen, keep, show_table

SECTIONS: dict[str, tuple[str, int]] = {
    "kernels": ("benchmarks.gpu.kernels_used", 60),
    "waits": ("benchmarks.gpu.host_waits", 45),
    "curves": ("benchmarks.gpu.loss_curves", 150),
    "memory": ("benchmarks.gpu.peak_memory", 110),
    "mfu": ("benchmarks.gpu.model_flops", 230),
}
"""Name → (module, seconds of ten minutes); the last one takes what time there is left."""
END = 15
"""Seconds before its end at which a section begins nothing more."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: JsonFile = None,
    only: Annotated[str, typer.Option(help=f"Sections: {','.join(SECTIONS)}; else all.")] = "",
    minutes: Annotated[float, typer.Option(min=0.1, help="For all sections together.")] = 10,
    smoke: Annotated[bool, typer.Option(help="Tiny shapes, on any machine.")] = False,
    inside: Annotated[str, typer.Option(hidden=True)] = "",
    file: Annotated[Path, typer.Option(hidden=True)] = Path(),
    until: Annotated[float, typer.Option(hidden=True)] = 0,
) -> None:
    """Run the sections one after the other, and report."""
    if inside:
        run_inside(inside, file, until, smoke=smoke)
        return
    if not smoke and not torch.cuda.is_available():
        print("no CUDA device here: nothing is measured (--smoke runs it on a processor)")
        return
    names = chosen(only, SECTIONS)
    end = time.monotonic() + 60 * minutes - 5
    outcomes: dict[str, Outcome] = {}
    for number, name in enumerate(names):
        weights = [SECTIONS[one][1] for one in names[number:]]
        share = (end - time.monotonic()) * weights[0] / sum(weights)
        outcomes[name] = outcome(SECTIONS[name][0], share, smoke=smoke)
        show(name, outcomes[name])
    device = {"date": date.today().isoformat(), "smoke": smoke}
    for one in outcomes.values():
        device |= one.device
    print(*rows(device, outcomes), sep="\n")
    keep(json_file, device | {"sections": {name: one.data() for name, one in outcomes.items()}})
    raise typer.Exit(any(one.failed or one.missed() for one in outcomes.values()))


def outcome(module: str, seconds: float, *, smoke: bool) -> Outcome:
    """Run a section in a process of its own for at most so many seconds, then kill it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        file, log = Path(folder) / "findings.jsonl", Path(folder) / "log"
        command = [sys.executable, "-m", "benchmarks.gpu", "--inside", module, "--file", str(file)]
        until = began + seconds - min(END, seconds / 2)  # the same clock in all processes
        command += ["--until", str(until), *(["--smoke"] if smoke else [])]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=CHECKOUT, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status, why = process.wait(seconds), ""
            except subprocess.TimeoutExpired:
                status, why = -signal.SIGKILL, f"killed after its {seconds:.0f} s"
            finally:
                stop(process)
        found = read(file.read_text().splitlines() if file.exists() else [])
        if status:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            ended = f"exit status {status}" if status > 0 else f"signal {-status}"
            found.failed = why or ": ".join([ended, *last])
    found.seconds = time.monotonic() - began
    return found


def stop(process: subprocess.Popen) -> None:
    """End what is left of a section: its process, and the ranks that it has started."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read(lines: Iterable[str]) -> Outcome:
    """Read what a section has written; the last one may be torn."""
    found, device = dict[str, Finding](), dict[str, Any]()
    for line in lines:
        try:
            one = json.loads(line)
        except ValueError:
            break
        if "what" in one:
            found[one["what"]] = Finding.of(one)
        else:
            device = one
    return Outcome(list(found.values()), device)


def run_inside(module: str, file: Path, until: float, *, smoke: bool) -> None:
    """Run a section in this process, and write each finding as it comes."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    (scratch := file.with_name("scratch")).mkdir()
    with file.open("w", buffering=1) as output:
        output.write(json.dumps(described(device)) + "\n")
        frame = Frame(device, smoke, until, scratch)
        for finding in import_module(module).findings(frame):
            output.write(json.dumps(finding.on(device).data()) + "\n")


def described(device: torch.device) -> dict[str, Any]:
    """Return the device, its driver and torch."""
    found: dict[str, Any] = {
        "device": platform.processor() or "CPU",
        "torch": torch.__version__,
        "driver": "",
    }
    if device.type == "cuda":
        found |= {"device": torch.cuda.get_device_name(device), "gpus": torch.cuda.device_count()}
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    if tool := shutil.which("nvidia-smi"):
        asked = [tool, "--query-gpu=driver_version,power.limit", "--format=csv,noheader", "-i", "0"]
        answer = subprocess.run(asked, check=False, capture_output=True, text=True)
        found["driver"] = answer.stdout.strip()
    return found


def show(name: str, one: Outcome) -> None:
    """Print a section's findings, with their limits."""
    cells = [(each.what, each.value(), each.verdict(), each.limit) for each in one.findings]
    title = f"{name}: {one.seconds:.0f} s" + (f"; {one.failed}" if one.failed else "")
    show_table(("finding", "value", "", "limit"), cells, title, 150)


if __name__ == "__main__":
    app()
