"""What every container has: above all a part of this machine's cores that others leave it."""

import subprocess
import sys

import pytest

from emulator.runtime.node import base_environment, cores

# Its own neighbours: processes that want every core, from just before the work to its end.
WORK = """
import os, signal, sys, time, torch
layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True).eval()
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
samples = torch.randn(1, 128, 128)
neighbours = []
for _ in range(2 * len(os.sched_getaffinity(0))):
    if not (child := os.fork()):
        while True: pass
    neighbours.append(child)
try:
    with torch.inference_mode():
        began = time.process_time()
        for _ in range(40): model(samples)
        print(time.process_time() - began)
finally:
    for child in neighbours: os.kill(child, signal.SIGKILL)
"""


def processor_seconds(**environment: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        env=base_environment("us-east-1", 1) | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.parametrize("nodes, threads", [(1, cores()), (2, cores() // 2), (1000, 0)])
def test_the_nodes_of_a_job_share_the_cores(nodes: int, threads: int):
    assert base_environment("x", nodes)["OMP_NUM_THREADS"] == str(max(1, threads))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or cores() < 2, reason="several threads, and libgomp")
def test_busy_neighbours_do_not_multiply_the_work():
    """Threads that spin while they wait burn some ten times the processor time of the work."""
    assert processor_seconds() < 3 * processor_seconds(OMP_NUM_THREADS="1")
