"""Train, deploy, monitor, train again, deploy again, offline and under load; and draw it.

python -m benchmarks.whole_loop [--plot docs/whole_loop.png]

The flights recipe, small (``loop.yaml``), on an emulator of its own. The command fails unless the
monitor named nothing at first, then exactly the two features that moved and the answers' log loss,
the new model serves in the end and answers better, and no request was lost.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.whole_loop.rehearsal import Seen, find_faults, rehearse
from trainyard.terminal import console, run


def main(plot: Annotated[Path | None, typer.Option(help="Draw what happened.")] = None) -> None:
    """Run the loop once."""
    with tempfile.TemporaryDirectory() as folder:
        seen = rehearse(Path(folder) / "aws")
    show_record(seen)
    if plot:
        from benchmarks.whole_loop.loop_picture import draw_loop

        draw_loop(seen, plot)
    wrong = find_faults(seen)
    console.print("\n".join(wrong), markup=False, highlight=False)
    raise typer.Exit(1 if wrong else 0)


def show_record(seen: Seen) -> None:
    """Print the moments, what the monitor found, and the counts."""
    begin = min(seen.moments.values())
    for name, at in seen.moments.items():
        console.print(f"{at - begin:6.0f} s  {name}", highlight=False)
    for look, violations in seen.named.items():
        for one in violations:
            name = one.get("feature_name") or one["metric_name"]
            console.print(f"{look}: {name}: {one['description']}", markup=False, highlight=False)
    for one in seen.slices:
        name, value, low = one["slice"], one["value"], one["low"]
        console.print(f"gate: {name}: better by {value:.4f}, at least {low:.4f}", highlight=False)
    lost = sum(not one.answer for one in seen.ended)
    console.print(f"{len(seen.ended):,} requests, {lost} lost; {seen.serving} serves")


if __name__ == "__main__":
    run(main)
