"""Open a model that was given as an archive, or file by file; challenger and champion alike."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from conditions.no_champion import NONE, UNRESOLVED_ARN
from steps.evaluate.evaluation_document import Artifact
from steps.evaluate.model_folder import evidence, files_of
from training.export.artifact import open_artifact
from training.weights.finetuning import base_model, model_files
from training.weights.starting_weights import BASE
from training.workloads import Packing, Workload
from trainyard.common.errors import DataError, TrainyardError


@dataclass(frozen=True)
class Source:
    """Source of a model: paths and words, which another process understands too."""

    folder: Path
    """Its files, unpacked; or a base in any form, if ``uri`` is set."""
    base: Path | None = None
    """Folder with the model that its adapters belong to, if the files hold only adapters."""
    uri: str | None = None
    """URI of the base that a training began with."""

    def model(self, workload: Workload, name: str) -> nn.Module:
        """Return the model in evaluation mode, on the CPU; ``name`` is the workload's.

        Raises:
            DataError: the model is damaged, or another workload's.
        """
        if self.uri is None:
            return open_artifact(self.folder, self.base)[1]
        model = workload.model()
        base_model.fill(model, workload, name, self.folder, self.uri)
        return model.eval()


@dataclass(frozen=True)
class TrainedModel:
    """A model, and the description in its files."""

    workload: Workload
    model: nn.Module
    description: dict[str, Any]
    """Content of its config.json."""
    artifact: Artifact
    """Files as they are registered."""
    source: Source


def open_archive(
    folder: Path, workload: str | None = None, base: Path | None = None
) -> TrainedModel:
    """Open the folder's model, on the CPU.

    Args:
        workload: required name of its workload.
        base: folder with the model that its adapters belong to, if it holds only adapters.

    Raises:
        TrainyardError: the model is missing, damaged, or of another workload.
    """
    files = files_of(folder, folder / "model")
    if workload is not None:
        # Before anything that the archive names is imported.
        _check_workload(files / "config.json", workload)
    return TrainedModel(*open_artifact(files, base), evidence(folder), Source(files, base))


def _check_workload(path: Path, workload: str) -> None:
    """Check the workload before anything that the archive names is imported."""
    try:
        name = json.loads(path.read_bytes())["workload"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is missing or damaged: {error!r}") from None
    if name != workload:
        raise DataError(f"it is of workload {name!r}; expected {workload!r}")


# The champion is evidence from outside: an error in it becomes a reason, which makes the gate
# reject; it never ends the job.


def open_champion(
    folder: Path, arn: str, challenger: TrainedModel, base: Path | None = None
) -> tuple[TrainedModel | None, str | None]:
    """Return (the champion, None), (None, why it cannot be compared), or (None, None) without a
    champion.

    Args:
        folder: folder with its model.tar.gz or its files, or no-champion.json.
        arn: ARN of its model package; or ``none``, ``unresolved``.
        base: folder with the challenger's base, which a champion of adapters may share.
    """
    if arn in (NONE, UNRESOLVED_ARN):
        return None, None
    try:
        return _open_folder(folder, challenger, base), None
    except TrainyardError as error:
        return None, f"champion {arn} cannot be compared: {error}"


def _open_folder(folder: Path, challenger: TrainedModel, base: Path | None) -> TrainedModel:
    if (folder / "no-champion.json").exists():
        raise DataError("the parameter ChampionModelUri names no folder with its model")
    if (base_champion := _as_base(folder, challenger)) is not None:
        return base_champion
    champion = open_archive(folder, challenger.description["workload"], base)
    own_packing, champion_packing = challenger.workload.packing, champion.workload.packing
    if (own_packing.fields, own_packing.info) != (champion_packing.fields, champion_packing.info):
        raise DataError(
            f"it takes samples {_samples(champion_packing)}; the test split holds samples "
            f"{_samples(own_packing)}"
        )
    return champion


def _as_base(folder: Path, challenger: TrainedModel) -> TrainedModel | None:
    """Return the champion if it is the challenger's own base: it takes the challenger's samples,
    whatever it was trained on.
    """
    base = challenger.description.get(BASE)
    if base is None or model_files.sha256(folder) != base["sha256"]:
        return None
    workload, name = challenger.workload, challenger.description["workload"]
    source = Source(folder, uri=base["uri"])
    model = source.model(workload, name)
    return TrainedModel(workload, model, {"workload": name}, evidence(folder), source)


def _samples(packing: Packing) -> str:
    fields = ", ".join(f"{n} {f.dtype} {f.shape}" for n, f in packing.fields.items())
    return f"{fields} made for {packing.info}"
