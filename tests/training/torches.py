"""Tests of what this torch does not have are left out, by the version that is declared for it."""

import pytest
import torch

from training.strategy_table import release


def lacks(least: str) -> bool:
    """Whether this torch is older."""
    return release(torch.__version__) < release(least)


def since(least: str, what: str) -> pytest.MarkDecorator:
    """Skip a test of ``what`` under a torch older than ``least``.

    Of a part of the training, ``least`` is what ``training.strategy_table`` declares.
    """
    return pytest.mark.skipif(lacks(least), reason=f"{what} needs torch {least} or newer")
