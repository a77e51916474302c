"""Rows of Markdown with a run's findings, for benchmarks/README.md and docs/evidence.md."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.gpu.findings import LATE, NOT_SHOWN, Outcome

CLAIMS = {
    "kernels": ("A step on a GPU uses fused attention and a fused optimizer", "other shapes"),
    "waits": ("The host does not wait for the GPU between logged steps", "other strategies"),
    "curves": ("A GPU trains the processor's curve", "long trainings; strategies on more GPUs"),
    "memory": ("A GPU's memory is what was foreseen", "larger models; other GPUs"),
    "mfu": ("The loop is as fast on a GPU as one written by hand", "many GPUs; real data"),
}
"""Section → (claim, what it leaves open)."""


def rows(device: Mapping[str, Any], sections: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield the lines to print: what to add to which document, and what nothing was shown of."""
    where = f"{device.get('device')}, torch {device.get('torch')}, {device['date']}"
    where += f", driver {device['driver']}" if device.get("driver") else ""
    whole = "; ".join(f"**{name}**: {quoted(one)}" for name, one in sections.items())
    yield "\nrow for benchmarks/README.md:"
    yield (
        "| gpu | on one GPU: kernels, waits of the host, loss curves and memory beside a "
        f"processor's and the forecasts, MFU | {whole} ({where}"
        f"{', --smoke' if device['smoke'] else ''}) | `benchmarks.gpu` |"
    )
    yield "\nrows for docs/evidence.md:"
    for name, one in sections.items():
        if why := unshown(one) or device["smoke"] * "tiny shapes show that it runs":
            yield f"none of {name}: {why}"
        elif name in CLAIMS:
            claim, left = CLAIMS[name]
            yield f"| {claim} | `benchmarks.gpu`: {quoted(one)} ({where}) | {left} |"


def unshown(one: Outcome) -> str:
    """Return why a section does not show its claim; empty if it does."""
    if one.failed or one.missed():
        return one.failed or f"missed: {', '.join(one.missed())}"
    if any(each.text == NOT_SHOWN for each in one.findings):
        return NOT_SHOWN
    return "" if any(each.quoted for each in one.findings) else LATE


def quoted(one: Outcome) -> str:
    """Return a section's figures in a line, or why it has none."""
    if (why := unshown(one)) == NOT_SHOWN:
        return why
    told = [f"{sum(each.met is True for each in one.findings)} limits met", *([why] if why else [])]
    late = [each.what for each in one.findings if each.text.startswith(LATE)]
    told += [f"{LATE}: {', '.join(late)}"] if late else []
    told += [f"{each.what} {each.value()}" for each in one.findings if each.quoted]
    return "; ".join(told).replace("|", "/")
