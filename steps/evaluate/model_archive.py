"""A model that was given as an archive, or file by file, opened; challenger and champion alike."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from conditions.no_champion import NONE, UNRESOLVED
from steps.evaluate.evaluation_document import Artifact
from steps.evaluate.model_folder import evidence, files_of
from training.export.artifact import open_artifact
from training.finetuning import base_model, model_files
from training.starting_weights import BASE
from training.workloads import Packing, Workload
from trainyard.common.errors import DataError, TrainyardError


@dataclass(frozen=True)
class Source:
    """Where a model is opened from: paths and words, which another process understands, too."""

    folder: Path
    """Its files, unpacked; or a base in any form, where ``uri`` says what it is."""
    base: Path | None = None
    """Folder with the model that its adapters belong to, where the files hold adapters alone."""
    uri: str | None = None
    """Of the base that a training began with."""

    def model(self, workload: Workload, name: str) -> nn.Module:
        """The model in evaluation mode, on the CPU; ``name`` is the workload's.

        Raises:
            DataError: it is damaged, or another workload's.
        """
        if self.uri is None:
            return open_artifact(self.folder, self.base)[1]
        model = workload.model()
        base_model.fill(model, workload, name, self.folder, self.uri)
        return model.eval()


@dataclass(frozen=True)
class Trained:
    """A model, and what its files say of it."""

    workload: Workload
    model: nn.Module
    description: dict[str, Any]
    """Its config.json."""
    artifact: Artifact
    """The files as they are registered."""
    source: Source


def open_archive(folder: Path, workload: str | None = None, base: Path | None = None) -> Trained:
    """The folder's model, on the CPU.

    Args:
        workload: the name that its workload must have.
        base: folder with the model that its adapters belong to, where it holds adapters alone.

    Raises:
        TrainyardError: there is none, it is damaged, or of another workload.
    """
    files = files_of(folder, folder / "model")
    if workload is not None:
        _check_workload(files / "config.json", workload)
    return Trained(*open_artifact(files, base), evidence(folder), Source(files, base))


def _check_workload(path: Path, expected: str) -> None:
    """Before anything is imported that the archive names."""
    try:
        name = json.loads(path.read_bytes())["workload"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is missing or damaged: {error!r}") from None
    if name != expected:
        raise DataError(f"it is of workload {name!r}; expected {expected!r}")


# It is evidence from outside: whatever is wrong with it becomes a reason, which makes the gate
# reject, and never ends the job.


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
    samples it was trained on.
    """
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
