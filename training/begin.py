"""Begin with what ``train.start_from`` names: say what that means, and take over what is there."""

import logging
from collections.abc import Mapping
from pathlib import Path

from training.config import TrainConfig
from training.optimizers import learning_rate
from training.start import Start
from trainyard.common import whole_file

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
