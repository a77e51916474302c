"""Jobs run inside the test's own process here."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny models are slower on two threads, by far when something else runs beside the tests."""
    import torch

    torch.set_num_threads(1)
