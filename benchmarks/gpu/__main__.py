"""Show on one GPU, in at most ten minutes, what the rest of the project shows on processors.

python -m benchmarks.gpu [--only curves,mfu] [--minutes 10] [--json FILE]
python -m benchmarks.gpu --smoke        # every section on tiny shapes, on any machine: does it run?

Each section has a process of its own, and its share of the minutes: kernels that a step used,
waits of the host, loss curves beside the processor's, memory beside its forecasts, MFU beside a
loop written by hand. One that fails, or is out of time, is reported with what it has found.
Exits with 1 if a section failed or a limit was missed; without a GPU and ``--smoke`` it says so,
and exits with 0.
"""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks import harness
from benchmarks.gpu.findings import Finding, Frame
from benchmarks.harness import CHECKOUT, JsonFile

SECTIONS: dict[str, tuple[str, int]] = {
    "kernels": ("benchmarks.gpu.watched_steps.iter_kernel_findings", 60),
    "waits": ("benchmarks.gpu.watched_steps.iter_wait_findings", 45),
    "curves": ("benchmarks.gpu.job_trainings.iter_curve_findings", 150),
    "memory": ("benchmarks.gpu.job_trainings.iter_memory_findings", 110),
    "mfu": ("benchmarks.gpu.short_training.iter_mfu_findings", 230),
}
"""Name → (function, its seconds of ten minutes); the last one gets the time that is left."""
END = 15
"""Seconds before its end at which a section begins nothing more."""


@dataclass(slots=True)
class Outcome:
    """Result of a section's process."""

    findings: list[Finding] = field(default_factory=list)
    failed: str = ""
    """Why the process failed; empty if it did not."""
    seconds: float = 0.0


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
    names = harness.choose_sections(only, SECTIONS)
    end = time.monotonic() + 60 * minutes - 5
    outcomes: dict[str, Outcome] = {}
    for number, name in enumerate(harness.track_steps("sections", names)):
        weights = [SECTIONS[one][1] for one in names[number:]]
        share = (end - time.monotonic()) * weights[0] / sum(weights)
        one = outcomes[name] = run_section(SECTIONS[name][0], share, smoke=smoke)
        title = f"{name}: {one.seconds:.0f} s" + (f"; {one.failed}" if one.failed else "")
        cells = [each.cells() for each in one.findings]
        harness.show_table(("finding", "value", "", "limit"), cells, title)
    device = describe_device() | {"smoke": smoke}
    print(", ".join(f"{name} {value}" for name, value in device.items()))
    sections = {name: asdict(one) for name, one in outcomes.items()}
    harness.write_json(json_file, device | {"sections": sections})
    missed = [f for one in outcomes.values() for f in one.findings if f.met is False]
    raise typer.Exit(bool(missed) or any(one.failed for one in outcomes.values()))


def run_section(function: str, seconds: float, *, smoke: bool) -> Outcome:
    """Run a section in its own process for at most ``seconds``, then kill it; return its result."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        file, log = Path(folder) / "findings.jsonl", Path(folder) / "log"
        until = began + seconds - min(END, seconds / 2)  # the same clock in all processes
        command = [sys.executable, "-m", "benchmarks.gpu", "--inside", function]
        command += ["--file", str(file), "--until", str(until), *(["--smoke"] if smoke else [])]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=CHECKOUT, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status, why = process.wait(seconds), ""
            except subprocess.TimeoutExpired:
                status, why = -signal.SIGKILL, f"killed after its {seconds:.0f} s"
            finally:
                with contextlib.suppress(ProcessLookupError):  # its ranks, too
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        found = Outcome([*{one["what"]: create_finding(one) for one in whole}.values()])
        if status:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            ended = f"exit status {status}" if status > 0 else f"signal {-status}"
            found.failed = why or ": ".join([ended, *last])
    found.seconds = time.monotonic() - began
    return found


def create_finding(values: dict[str, Any]) -> Finding:
    """Create a finding from a parsed line of JSON."""
    return Finding(**values | {"rounds": tuple(values["rounds"])})


def run_inside(function: str, file: Path, until: float, *, smoke: bool) -> None:
    """Run a section in this process; write each finding to ``file`` as a line of JSON."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    (scratch := file.with_name("scratch")).mkdir()
    module, _, name = function.rpartition(".")
    with file.open("w", buffering=1) as output:
        for finding in getattr(import_module(module), name)(Frame(device, smoke, until, scratch)):
            output.write(json.dumps(asdict(finding.hide_without_gpu(device))) + "\n")


def describe_device() -> dict[str, Any]:
    """Return the date, the device, and the versions of its driver and of torch."""
    found = {"date": date.today().isoformat(), "torch": torch.__version__}
    if not torch.cuda.is_available():
        return found | {"device": platform.processor() or "CPU"}
    command = ["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    found |= {"device": torch.cuda.get_device_name(0), "driver": answer.stdout.strip()}
    return found | {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


if __name__ == "__main__":
    app()
