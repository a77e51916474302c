"""A process's share of the machine's cores."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from training.cpu_cores import limit_torch_threads
from trainyard.common.process import count_cores

NO_QUOTA = Path("/nowhere/cpu.max")
ALL = count_cores(NO_QUOTA)


@pytest.fixture(autouse=True)
def _many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4 * ALL)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "quota, expected",
    [
        ("max 100000", ALL),
        *(("150000 100000", 1), ("50000 100000", 1)),
        *((f"{ALL}00000 100000", ALL), (f"{ALL + 1}00000 100000", ALL)),
        ("", ALL),
    ],
)
def test_a_containers_quota_counts(tmp_path: Path, quota: str, expected: int):
    (tmp_path / "cpu.max").write_text(quota)
    assert count_cores(tmp_path / "cpu.max") == expected


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"])
@pytest.mark.parametrize("ranks", [1, 64])
def test_the_ranks_of_a_machine_share_its_cores(name: str, ranks: int):
    limit_torch_threads({name: str(ranks)})
    assert torch.get_num_threads() == max(1, count_cores() // ranks)


def test_omp_num_threads_is_never_exceeded():
    torch.set_num_threads(1)
    limit_torch_threads({})
    assert torch.get_num_threads() == 1
