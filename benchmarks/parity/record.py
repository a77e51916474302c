"""The record of all cases: made against an endpoint, written, and read again."""

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import benchmarks.parity.cases  # noqa: F401 - fills the table
from benchmarks.parity.case_table import CASES
from benchmarks.parity.recording import FAILURES, Place, Run
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

FORMAT = 2
EMULATOR = Path(__file__).with_name("emulator.json")
UNFORESEEN = (LookupError, TypeError, ValueError)
"""What a case raises when an answer has another form; the other cases' records are worth money."""
QUOTA = ("ResourceLimitExceeded", "account-level service limit")


def recorded(
    place: Place, names: Iterable[str], at_once: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return the record of these cases, ``at_once`` of which run side by side.

    What a case made is removed at its end, also after an error or an interruption; ``tell`` gets a
    line for each case, and for each thing that could not be removed.
    """
    found: dict[str, list] = {}
    missing: dict[str, str] = {}
    with ThreadPoolExecutor(at_once) as pool:
        names = list(names)
        futures = {pool.submit(_run, place, name, tell): name for name in names}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                name, (entries, why, seconds) = futures[future], future.result()
                found |= {} if why else {name: entries}
                missing |= {name: why} if why else {}
                tell(f"{count} of {len(names)}: {name}, {seconds:.0f} s{why and f': {why}'}")
        except BaseException:
            tell("ends early: what runs is stopped, and what was made is removed")
            place.halted.set()
            pool.shutdown(cancel_futures=True)
            raise
    return {"format": FORMAT, "cases": found, "not_recorded": missing}


def _run(place: Place, name: str, tell: Callable[[str], None]) -> tuple[list, str, float]:
    """Return a case's entries, why they say nothing about AWS if so, and the seconds it took."""
    run = Run(place, list(CASES).index(name))
    begin, why = time.monotonic(), ""
    try:
        CASES[name].run(run)
    except (*FAILURES, *UNFORESEEN) as error:
        why = run.scrub(f"{type(error).__name__}: {error}")
    finally:
        for line in run.clean():
            tell(f"not removed: {line}")
    said = json.dumps(run.recorded)
    if CASES[name].jobs and any(words in said for words in QUOTA):
        why = why or "an instance quota of the account is too low; Service Quotas raises it"
    return run.recorded, why, time.monotonic() - begin


def write(path: Path, record: dict[str, Any]) -> None:
    """Write the record with one call in a line."""
    lines = [f'{{"format": {record["format"]},']
    lines.append(f'"not_recorded": {json.dumps(record["not_recorded"], sort_keys=True)},')
    listed = []
    for name, entries in sorted(record["cases"].items()):
        calls = ",\n".join(f"  {json.dumps(entry, sort_keys=True)}" for entry in entries)
        listed.append(f' "{name}": [\n{calls}\n ]')
    atomic_file.write(path, "\n".join([*lines, '"cases": {', ",\n".join(listed), "}}", ""]))


def read(path: Path) -> dict[str, Any]:
    """Return the record in a file. Raises DataError."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}; expected a file that benchmarks.parity wrote") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(
            f"{path}: expected a record of format {FORMAT}; record it again: "
            "python -m benchmarks.parity --out"
        )
    return record
