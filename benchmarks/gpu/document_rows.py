"""Rows of Markdown with a run's findings, for benchmarks/README.md and docs/evidence.md."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.findings import NOT_SHOWN, Finding

CLAIMS = {
    "kernels": ("A step on a GPU uses fused attention and a fused optimizer", "other shapes"),
    "waits": ("The host does not wait for the GPU between logged steps", "other strategies"),
    "curves": ("A GPU trains the processor's curve", "long trainings; strategies on more GPUs"),
    "memory": ("A GPU's memory is what was foreseen and simulated", "larger models; other GPUs"),
    "mfu": ("The loop is as fast on a GPU as one written by hand", "many GPUs; real data"),
}
"""Section → (claim, what it leaves open)."""


def rows(device: Mapping[str, Any], sections: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    """Yield the lines to print: what to add to which document."""
    where = f"{device.get('device', '')}, torch {device.get('torch', '')}, {device['date']}"
    if device["smoke"]:
        where += ", --smoke: tiny shapes, whose figures mean nothing"
    whole = "; ".join(f"{name}: {quoted(found)}" for name, found in sections.items())
    yield "\nrow for benchmarks/README.md:"
    yield (
        "| gpu | on one GPU: kernels, waits of the host, loss curves and memory beside a "
        f"processor's and the forecasts, MFU | {where}: {whole} | `benchmarks.gpu` |"
    )
    yield "\nrows for docs/evidence.md:"
    for name in (one for one in CLAIMS if one in sections):
        claim, left = CLAIMS[name]
        how = f"{quoted(sections[name])} (`benchmarks.gpu --only {name}`; {where})"
        yield f"| {claim} | {how} | {left} |"


def quoted(found: Sequence[Finding]) -> str:
    """Return a section's figures in a line: verdicts by number, misses by name, and the quoted."""
    missed = [one.what for one in found if one.met is False]
    met = sum(one.met is True for one in found)
    told = [f"{met} of {met + len(missed)} limits met"]
    told += [f"missed: {', '.join(missed)}"] if missed else []
    shown = [one for one in found if one.quoted]
    if shown and all(one.text == NOT_SHOWN for one in shown):
        return f"{NOT_SHOWN} (on the processor {'; '.join(told)})"
    return "; ".join(told + [f"{one.what} {one.value()}".replace("|", "/") for one in shown])
