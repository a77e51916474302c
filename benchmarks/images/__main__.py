"""Decoded and augmented images a second, with N workers: ours beside torchvision and litdata.

python -m benchmarks.images [--images 2000] [--rounds 5] [--workers 1 2 4] [--out DIR]

Contenders are measured one after the other in each round, in processes of their own. What is
compared is images for each second of the processor, the start of workers included and imports not,
since that hardly depends on what else runs on the machine; images a second are shown beside it. A
ratio is ours over theirs of the same round: its median, smallest and largest.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.images import pictures
from benchmarks.images.contenders import CONTENDERS

OURS = "ours"
Round = dict[str, dict[str, float]]


def measure(name: str, folder: Path, workers: int, images: int) -> dict[str, float]:
    """One contender, once."""
    command = [sys.executable, "-m", "benchmarks.images.worker", name, str(folder)]
    done = subprocess.run(
        [*command, str(workers), str(images)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def made(scratch: Path, images: int) -> dict[str, Path]:
    """Contender → its data; those whose packages are missing are left out, and named."""
    pictures.write(scratch / "images", images)
    found = {}
    for name, contender in CONTENDERS.items():
        try:
            contender().make(scratch / "images", scratch / name)
            measure(name, scratch / name, 0 if name != OURS else 1, 64)
            found[name] = scratch / name
        except (ImportError, subprocess.CalledProcessError) as error:
            print(f"{name}: does not take part: {getattr(error, 'stderr', error)}"[-400:])
    return found


def show(workers: int, rounds: list[Round]) -> None:
    """One line a contender."""
    for name in rounds[0]:
        per_second, per_processor, first = (
            statistics.median(one[name][key] for one in rounds)
            for key in ("images_per_second", "images_per_processor_second", "first_batch_seconds")
        )
        ratios = [
            one[OURS]["images_per_processor_second"] / one[name]["images_per_processor_second"]
            for one in rounds
        ]
        print(
            f"{workers:>7} {name:<12} {per_second:>9.0f} {per_processor:>13.0f} {first:>8.2f}   "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", type=Path, help="a folder for images.json")
    options = parser.parse_args()
    told = {}
    with tempfile.TemporaryDirectory() as scratch:
        places = made(Path(scratch), options.images)
        print("workers contender    images/s  images/CPU s  first s   CPU ratio, ours over it")
        for workers in options.workers:
            rounds = [
                {n: measure(n, folder, workers, options.images) for n, folder in places.items()}
                for _ in range(options.rounds)
            ]
            show(workers, rounds)
            told[workers] = rounds
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "images.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
