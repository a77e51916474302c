"""Begin with what ``train.start_from`` names: say what that means, and take over what is there."""

import json
import logging
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from training import artifact
from training.config import TrainConfig
from training.optimizers import learning_rate
from training.start import ARCHIVE, Start
from training.workloads import Workload
from trainyard.common import whole_file
from trainyard.common.errors import DataError

log = logging.getLogger(__name__)
HISTORY = "history.jsonl"


def tell(start: Start, differs: Mapping[str, str], config: TrainConfig, history: Path) -> None:
    """On one rank: say with what the training begins, and take over the curve where it is given.

    Args:
        differs: ``check_differences``.
        history: where this training keeps its metric lines.
    """
    log.info("the training %s", start.asked.words())
    if start.said is None or start.lineage is None:
        return
    step, before = start.said.step, config.model_copy(update=start.lineage.parts.settings)
    log.info(
        "it goes on after step %d of training %s; different since: %s; learning rate %g at step "
        "%d, then %g by this training's schedule",
        step,
        start.lineage.parts.name,
        "; ".join(differs.values()) or "nothing",
        learning_rate(before, step - 1),
        step,
        learning_rate(config, step),
    )
    given = start.folder.parent / HISTORY  # where the checkpoint's whole training was given
    if given.is_file() and not history.exists():
        history.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(history, given.read_bytes())


def load_model(start: Start, workload: Workload, name: str, model: nn.Module) -> None:
    """Write the weights of the model's archive into ``model``, whichever strategy shares it later.

    Args:
        name: of the workload.

    Raises:
        DataError: the archive is damaged, of another workload, or its weights are another model's.
    """
    archive = start.folder / ARCHIVE
    files = _read(archive, ("config.json", "model.safetensors"))
    try:
        description: dict[str, Any] = json.loads(files["config.json"])
        if description["workload"] != name:
            raise DataError(
                f"start_from: {start.asked.uri} is a model of workload "
                f"{description['workload']!r}; this training is of {name!r}"
            )
        artifact.fill(model, workload, load(files["model.safetensors"]), description)
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"start_from: the weights of {start.asked.uri} are not those of this training's model: "
            f"{' '.join(str(error).split())}; set workload.config as it was there"
        ) from None


def _read(archive: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """These files of a tar.gz, and no other: nothing is unpacked onto the disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for entry in tar:
                name = entry.name.removeprefix("./")
                if name in names and (file := tar.extractfile(entry)):
                    found[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
    if missing := [name for name in names if name not in found]:
        raise DataError(f"{archive}: holds no {missing[0]}; it is no model of a train step of ours")
    return found
