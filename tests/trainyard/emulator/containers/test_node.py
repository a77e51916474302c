"""The environment of every container, above all its share of this machine's cores."""

import subprocess
import sys

import pytest

from trainyard.emulator.containers.node import base_environment, cores

# With neighbours of its own: processes that want every core, from just before the work to its end.
WORK = """
import os, signal, sys, time
{prepare}
neighbours = []
for _ in range(2 * len(os.sched_getaffinity(0))):
    if not (child := os.fork()):
        while True: pass
    neighbours.append(child)
try:
    began = time.process_time()
    {work}
    print(time.process_time() - began)
finally:
    for child in neighbours: os.kill(child, signal.SIGKILL)
"""
TORCH = WORK.format(
    prepare="import torch; layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True);"
    "layer.eval().requires_grad_(False); sample = torch.randn(1, 128, 128)",
    work="for _ in range(60): layer(sample)",
)
NUMPY = WORK.format(
    prepare="import numpy; matrix = numpy.ones((300, 300))",
    work="for _ in range(60): matrix @ matrix",
)


def processor_seconds(program: str, **environment: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=base_environment("us-east-1", 1) | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.parametrize("nodes, threads", [(1, cores()), (2, cores() // 2), (1000, 0)])
def test_the_nodes_of_a_job_share_the_cores(nodes: int, threads: int):
    assert base_environment("x", nodes)["OMP_NUM_THREADS"] == str(max(1, threads))


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or cores() < 2, reason="several threads, and libgomp")
@pytest.mark.parametrize("program", [TORCH, NUMPY], ids=["torch", "numpy"])
def test_busy_neighbours_do_not_multiply_the_work(program: str):
    """Threads that spin while they wait use about ten times the processor time of the work."""
    assert processor_seconds(program) < 3 * processor_seconds(program, OMP_NUM_THREADS="1")
