"""Skips tests of features that this torch lacks, by the version declared for them."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from training.config import TrainConfig
from training.strategy_table import explain_unfit_torch, parse_release


def lacks(least: str) -> bool:
    """Return whether this torch is older than ``least``."""
    return parse_release(torch.__version__) < parse_release(least)


def since(least: str, what: str) -> pytest.MarkDecorator:
    """Skip a test of ``what`` under a torch older than ``least``.

    Of a part of the training, ``least`` is what ``training.strategy_table`` declares.
    """
    return pytest.mark.skipif(lacks(least), reason=f"{what} needs torch {least} or newer")


def trains_here(settings: Mapping[str, Any]) -> bool:
    """Return whether the job would start a training with these settings under this torch."""
    needed = {"max_steps": 1, "global_batch": 8, "micro_batch": 1, "learning_rate": 0.1}
    names = TrainConfig.model_fields.keys() & settings.keys()
    config = TrainConfig(**needed | {name: settings[name] for name in names})
    return explain_unfit_torch(config, torch.__version__) is None
