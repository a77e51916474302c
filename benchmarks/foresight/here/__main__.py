"""Predicted against measured CPU seconds a step and peak memory of 30 trainings on this machine.

python -m benchmarks.foresight.here --calibrate     measure 70 other trainings
python -m benchmarks.foresight.here --probe         what this machine's calls, links and pages take
python -m benchmarks.foresight.here --predict       write predictions.json, which is committed
python -m benchmarks.foresight.here --measure       measure the 30, which is committed later
python -m benchmarks.foresight.here [--json]        compare both, as they lie here

Each takes some ten minutes on two idle cores, --predict seconds after --probe, which counts and
prices what all those trainings call, and keeps that in a folder (--work). A training is a real one,
of ranks with one thread each, over gloo; CPU seconds are those of all its ranks, user and system.
All of it is for an idle machine: others on its cores take caches, and CPU seconds grow by a third.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.foresight.here.measure import measure, recorded
from benchmarks.foresight.here.prediction import COVERED, Model, fitted, seconds, size
from benchmarks.foresight.here.prices import Prices, prices
from benchmarks.foresight.here.settings import CALIBRATION, TEST, Here, drawn
from benchmarks.foresight.here.work import Rank, works
from training.probe import probed
from trainyard.common import whole_file
from trainyard.common.errors import DataError

FOLDER = Path(__file__).parent
PROBE, CALIBRATED = FOLDER / "probe.json", FOLDER / "calibration.jsonl"
EARLIER = FOLDER / "earlier.jsonl"
"""Draws that were predicted and measured before, on other machines: not fitted on."""

COUNTED, PRICED = "counted.jsonl", "priced.json"
PREDICTED, MEASURED = FOLDER / "predictions.json", FOLDER / "measured.jsonl"
AGAIN = FOLDER / "again.jsonl"
"""The same settings, measured a second time: how far apart two measurements are."""

FIGURES = {"cpu_seconds": seconds, "peak_bytes": size}
"""What is predicted → the parts that it is a sum of."""

SETTINGS, OTHERS = 30, 70


def main(
    calibrate: Annotated[bool, typer.Option("--calibrate")] = False,
    probe: Annotated[bool, typer.Option("--probe")] = False,
    predict: Annotated[bool, typer.Option("--predict")] = False,
    run: Annotated[bool, typer.Option("--measure")] = False,
    work: Annotated[Path, typer.Option(help="Kept here: counts, prices.")] = Path("build/here"),
    at_once: Annotated[int, typer.Option(min=1, help="Trainings measured at a time.")] = 1,
    json_: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
) -> None:
    """Calibrate, probe, predict, measure or compare."""
    if calibrate:
        measure(drawn(CALIBRATION, OTHERS), CALIBRATED, at_once)
    if probe:
        whole_file.write(PROBE, json.dumps(probed(ranks=2, threads=1), indent=1).encode())
        (work / PRICED).unlink(missing_ok=True)
        known(work)
    if predict:
        whole_file.write(PREDICTED, json.dumps(predictions(work), indent=1).encode() + b"\n")
    if run:
        if not PREDICTED.exists():
            raise DataError(f"{PREDICTED.name} is missing: predict before you measure")
        measure(drawn(TEST, SETTINGS), MEASURED, at_once)
    if not (calibrate or probe or predict or run):
        told = json.loads(PREDICTED.read_text())
        found = comparison(told["settings"], recorded(MEASURED))
        found["figures"]["again"] = repeated(told["settings"])
        print(json.dumps(found["figures"])) if json_ else report(found)


def predictions(cache: Path) -> dict[str, Any]:
    """Of each setting both figures: median, p10 and p90; with what they were made of."""
    probe, measured, settings = json.loads(PROBE.read_text()), calibrated(), drawn(TEST, SETTINGS)
    counted, costs = known(cache)
    models = {}
    for name, parts in FIGURES.items():
        given = [parts(one, counted[one], costs) for one in measured]
        models[name] = fitted(given, [one[name] for one in measured.values()])
    said = {name: probe[name] for name in ("processor", "torch", "ranks", "threads")}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "probed": probe["date"],
        **said,
        "calibrated_on": len(measured),
        "factors": {name: dict(one.factors) for name, one in models.items()},
        "settings": [_predicted(one, counted[one], costs, models) for one in settings],
    }


def calibrated() -> dict[Here, dict[str, float]]:
    """What factors are fitted on: the calibration's settings, which this machine ran.

    Those of earlier draws are another machine's: the same 70 settings took 1.65 times the CPU
    seconds here (median) of what they took where they ran before, between 1.46 and 2.03 times.

    Raises:
        DataError: one of them is to be predicted.
    """
    found, seen = recorded(CALIBRATED), recorded(CALIBRATED) | recorded(EARLIER)
    if known := [one.name for one in drawn(TEST, SETTINGS) if one in seen]:
        raise DataError(f"{known[0]} is to be predicted, and was measured before")
    return found


def known(work: Path) -> tuple[Mapping[Here, Sequence[Rank]], Prices]:
    """What the calibrated and the predicted settings do, and what that costs here."""
    work.mkdir(parents=True, exist_ok=True)
    counted = works([*calibrated(), *drawn(TEST, SETTINGS)], work / COUNTED)
    return counted, prices(json.loads(PROBE.read_text()), counted, work / PRICED)


def _predicted(
    setting: Here, ranks: Sequence[Rank], prices: Prices, models: Mapping[str, Model]
) -> dict[str, Any]:
    told: dict[str, Any] = {"setting": setting.told()}
    for name, model in models.items():
        value, factor = model.of(FIGURES[name](setting, ranks, prices)), float(np.exp(model.off))
        told[name] = {"p10": value / factor, "p50": value, "p90": value * factor}
    return told


def comparison(
    predicted: Sequence[Mapping[str, Any]], measured: Mapping[Here, Mapping[str, float]]
) -> dict[str, Any]:
    """``rows`` of settings that are predicted and measured, and ``figures`` over them."""
    rows = []
    for one in predicted:
        setting = Here(**one["setting"])
        if setting in measured:
            rows.append({"name": setting.name} | _row(one, measured[setting]))
    figures: dict[str, Any] = {}
    for name in FIGURES if rows else ():
        errors = [abs(row[name]["error"]) for row in rows]
        figures[name] = {
            "settings": len(rows),
            "mean_error": mean(errors),
            "worst_error": max(errors),
            "within_10_percent": sum(one <= 0.1 for one in errors),
            "inside_80_percent_interval": sum(row[name]["inside"] for row in rows),
        }
    return {"rows": rows, "figures": figures}


def repeated(predicted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The second measurements against the predictions, and how far they are from the first."""
    first, second = recorded(MEASURED), recorded(AGAIN)
    figures: dict[str, Any] = comparison(predicted, second)["figures"]
    for name in figures:
        apart = [abs(second[one][name] / first[one][name] - 1) for one in second if one in first]
        figures[name] |= {"mean_apart": mean(apart), "most_apart": max(apart)}
    return figures


def _row(one: Mapping[str, Any], measured: Mapping[str, float]) -> dict[str, Any]:
    found = {}
    for name in FIGURES:
        low, value, high = (one[name][part] for part in ("p10", "p50", "p90"))
        real = measured[name]
        inside = bool(low <= real <= high)
        found[name] = {
            "predicted": value,
            "measured": real,
            "error": value / real - 1,
            "inside": inside,
        }
    return found


def report(found: Mapping[str, Any]) -> None:
    """A row a setting, and the means."""
    table = Table("setting", "CPU s", "predicted", "", "peak MB", "predicted", "", box=None)
    for row in found["rows"]:
        cells = [row["name"]]
        for name, unit in (("cpu_seconds", 1.0), ("peak_bytes", 1e6)):
            one = row[name]
            numbers = (f"{one[what] / unit:.3g}" for what in ("measured", "predicted"))
            cells += [*numbers, f"{one['error']:+.1%}" + ("" if one["inside"] else " outside")]
        table.add_row(*cells)
    Console(width=140).print(table)
    figures = dict(found["figures"])
    again = figures.pop("again")
    for name, one in [*figures.items(), *((f"{n}, again", o) for n, o in again.items())]:
        print(
            f"{name}: mean error {one['mean_error']:.1%}, worst {one['worst_error']:.1%}, "
            f"{one['within_10_percent']} of {one['settings']} within 10 %, "
            f"{one['inside_80_percent_interval']} inside their {COVERED:.0%} interval"
        )
    for name, one in again.items():
        print(
            f"{name}: two measurements are {one['mean_apart']:.1%} apart, {one['most_apart']:.1%} "
            "at most"
        )


if __name__ == "__main__":
    typer.run(main)
