"""Other planners on the rows that they can answer, beside ours on the same rows.

Each runs under a Python of its own, which an environment variable names; one that is not there is
left out by name. benchmarks/README.md says how they are installed.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.foresight.fitting import Case, Floats
from benchmarks.foresight.holding_out import GROUPS, Score, held_out, score

CONTENDERS = Path(__file__).parent / "contenders"


@dataclass(frozen=True)
class Peer:
    """A planner that is asked."""

    name: str
    script: str
    variables: tuple[str, ...]
    """The environment variables that name its Python, and what else its script is given."""

    scaled: bool = False
    """Whether its user has to say what share of the peak is reached: it is given the one that is
    right for the median of these very rows."""


PEERS = (
    Peer(
        "Calculon",
        "ask_calculon.py",
        ("TRAINYARD_BENCH_CALCULON", "TRAINYARD_BENCH_CALCULON_SYSTEM"),
    ),
    Peer("llm-analysis", "ask_llm_analysis.py", ("TRAINYARD_BENCH_LLM_ANALYSIS",), scaled=True),
)


def scores(of: Sequence[Case]) -> dict[str, dict[str, Score] | str]:
    """Peer → its score and ours on the rows that it answers, or why it takes no part."""
    ours = held_out(of, GROUPS["model size"])
    found: dict[str, dict[str, Score] | str] = {}
    for peer in PEERS:
        missing = [name for name in peer.variables if not os.environ.get(name)]
        found[peer.name] = (
            f"left out: {missing[0]} is not set" if missing else _beside(peer, of, ours)
        )
    return found


def _beside(peer: Peer, of: Sequence[Case], ours: Floats) -> dict[str, Score]:
    seconds = _asked(peer, of)
    known = ~np.isnan(seconds)
    ratio = seconds[known] / np.array([case.measured for case in of])[known]
    if peer.scaled:
        ratio = ratio / np.median(ratio)
    return {peer.name: score(ratio - 1), "ours": score(ours[known])}


def _asked(peer: Peer, of: Sequence[Case]) -> Floats:
    """Seconds a step; not a number where it has no answer."""
    python, *more = (os.environ[name] for name in peer.variables)
    rows = "".join(json.dumps(_row(case)) + "\n" for case in of)
    command = [python, str(CONTENDERS / peer.script), *more]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, input=rows, text=True, capture_output=True, cwd=folder, check=True
        )
    lines = done.stdout.splitlines()[-len(of) :]
    return np.array([np.nan if line == "null" else float(line) for line in lines])


def _row(case: Case) -> dict[str, object]:
    gbps = case.setting.node_gbps or case.setting.device.node_gbps
    return {**case.setting.model_dump(mode="json"), "node_gbps": gbps}


def table(found: dict[str, dict[str, Score] | str]) -> Table:
    """A row for each peer, and one for ours beside it."""
    shown = Table("planner", "rows", "mean", "within 10 %", "worst", title="peers")
    for name, scores in found.items():
        if isinstance(scores, str):
            shown.add_row(name, scores)
            continue
        for who, one in scores.items():
            label = who if who == name else f"{who}, on {name}'s rows"
            figures = f"{one.mean:.1%}", f"{one.within:.0%}", f"{one.worst:.0%}"
            shown.add_row(label, str(one.rows), *figures)
    return shown
