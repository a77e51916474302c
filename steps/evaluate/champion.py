"""The champion: the model that the challenger has to be compared with, when there is one.

It is evidence from outside: whatever is wrong with it becomes a reason, which makes the gate
reject, and never ends the job.
"""

from pathlib import Path

from conditions.champion import NONE, UNRESOLVED
from steps.evaluate.archive import Source, Trained, open_archive
from steps.evaluate.unpacked import evidence
from training import model_files
from training.start import BASE
from training.workloads import Packing
from trainyard.common.errors import DataError, TrainyardError


def open_champion(
    folder: Path, arn: str, challenger: Trained, base: Path | None = None
) -> tuple[Trained | None, str | None]:
    """(the champion, None), (None, why it cannot be compared), or (None, None) when there is none.

    Args:
        folder: holds its model.tar.gz or its files, or no-champion.json.
        arn: of its model package; or ``none``, ``unresolved``.
        base: folder with the challenger's base, which a champion of adapters may have, too.
    """
    if arn in (NONE, UNRESOLVED):
        return None, None
    try:
        return _opened(folder, challenger, base), None
    except TrainyardError as error:
        return None, f"champion {arn} cannot be compared: {error}"


def _opened(folder: Path, challenger: Trained, base: Path | None) -> Trained:
    if (folder / "no-champion.json").exists():
        raise DataError("the parameter ChampionModelUri does not say where its model is")
    if (begun := _as_base(folder, challenger)) is not None:
        return begun
    champion = open_archive(folder, challenger.description["workload"], base)
    ours, theirs = challenger.workload.packing, champion.workload.packing
    if (ours.fields, ours.info) != (theirs.fields, theirs.info):
        raise DataError(
            f"it takes samples {_samples(theirs)}; the test split holds samples {_samples(ours)}"
        )
    return champion


def _as_base(folder: Path, challenger: Trained) -> Trained | None:
    """The champion that is the challenger's own base: it takes what the challenger takes, whatever
    samples it was trained on."""
    told = challenger.description.get(BASE)
    if told is None or model_files.sha256(folder) != told["sha256"]:
        return None
    workload, name = challenger.workload, challenger.description["workload"]
    source = Source(folder, uri=told["uri"])
    model = source.model(workload, name)
    return Trained(workload, model, {"workload": name}, evidence(folder), source)


def _samples(packing: Packing) -> str:
    fields = ", ".join(f"{n} {f.dtype} {f.shape}" for n, f in packing.fields.items())
    return f"{fields} made for {packing.info}"
