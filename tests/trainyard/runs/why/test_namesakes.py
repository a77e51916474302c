"""Texts that look like a cause's and have another: of thousands of messages that libraries raise
(torch, transformers, DeepSpeed, NCCL, …), those that a signature took for its own.
"""

import pytest

from trainyard.runs.why.diagnosis import diagnose_failure
from trainyard.runs.why.logged_exceptions import parse_evidence

NAMESAKES = {
    "requests.exceptions.InvalidHeader: Header value must be str or bytes": "program/damaged",
    "_pickle.UnpicklingError: Unsupported operand 149": "program/damaged",
    "premature.ParserError: premature end-of-expression in 'x +'": "program/damaged",
    "IsADirectoryError: Expected file but found directory at 'out'": "program/file",
    "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach x: offline mode is enabled.": (
        "program/network"
    ),
    "FloatingPointError: The system is too ill-conditioned for this solver": "program/not-finite",
    "ModuleNotFoundError: No module named 'segfault_handler'": "hardware/segfault",
    "ImportError: cannot import name 'NoCredentialsError' from 'boto3.x'": "aws/credentials",
    "openai.InternalServerError: Error code: 500": "aws/internal",
    "RuntimeError: GPU 3: Thermal Throttling for clock rate": "aws/throttled",
    "MemoryError: std::bad_alloc: out_of_memory: RMM failure": "memory/host",
    "java.lang.OutOfMemoryError: unable to create new native thread": "memory/host",
    "DistNetworkError: cannot reach algo-2: Name or service not known": "program/network",
    "URLError: <urlopen error unknown url type: s3>": "program/network",
    "SafetensorError: File does not contain tensor lm_head.weight": "program/damaged",
    "ValueError: FSDP2 mapping failed (missing: lm_head.weight)": "aws/ping",
    "ValueError: At least one input sequence is required.": "program/channel",
    "ValueError: Invalid token nesting": "program/hub",
    "ValueError: Cannot write manifest for table version: 3": "aws/image",
    "ImportError: import error in used: m": "ranks/port",
    "jmespath.exceptions.UnknownFunctionError: Unknown function: x()": "aws/function",
    "RuntimeError: Mismatched NCCL version detected : rank 0 version 22703": "ranks/mismatch",
    "OSError: [Errno 28] inotify watch limit reached": "memory/disk",
    "ValueError: Default process group has not been initialized": "ranks/rendezvous",
}


FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    run()\n'


@pytest.mark.parametrize(("text", "other"), NAMESAKES.items(), ids=NAMESAKES.values())
def test_what_another_cause_is_called_by_is_not_taken_for_it(text: str, other: str):
    assert diagnose_failure(parse_evidence(FRAMES + text)).name != other
    assert diagnose_failure(parse_evidence(text)).name != other


BASH = "/bin/bash^M: bad interpreter: No such file or directory"
NOT_BASH = "/x/evaluate.py: line 5: import: command not found"
LIBFABRIC = "libfabric:7:1::efa:cq:open():9<warn> Unable to open: Cannot allocate memory"
ROUTE = "a:1:1 [6] NCCL WARN Connect to 10.0.0.4<5> returned 113(No route to host)"
RMM = "std::bad_alloc: out_of_memory: CUDA error at: rmm/mr/cuda_memory_resource.hpp"
BUILD = "Command '['which', 'c++']' returned non-zero exit status 1."
SPOT = "Spot instances were interrupted and MaxWaitTimeInSeconds exceeded."
REMOTE = "Some NCCL operations have failed or timed out: ncclRemoteError"


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("ValueError:the outputs are NaN, stopping", "program/not-finite", "not finite"),
        ("IndexError: index 0 is out of bounds for axis 0 with size 0", "exception", "size 0"),
        ("io.UnsupportedOperation: not readable", "exception", "not readable"),
        (LIBFABRIC, "ranks/efa", "EFA"),
        (BASH, "program/entry-point", "command"),
        ("srun: error: node17: task 3: Out Of Memory", "memory/host", "memory was full"),
        (BUILD, "program/build", "compiler"),
        (NOT_BASH, "program/entry-point", "/x/evaluate.py"),
        (RMM, "memory/gpu", "GPU's memory"),
        ("std::bad_alloc", "memory/host", "machine's own memory"),
        (ROUTE, "ranks/nccl-system", "NCCL"),
        ("slurmstepd: error: Exceeded job memory limit", "memory/host", "memory"),
        ("Spot ITN received. The instance will be interrupted.", "aws/spot", "taken back"),
        (SPOT, "aws/wait-limit", ""),
        (REMOTE, "ranks/nccl-remote", "rank"),
        ("ConnectionError:hub is away", "exception", "hub is away"),
        ("The docker daemon is gone for good.", "error", "daemon is gone"),
        ("FileNotFoundError: YAML file not found: prod.yaml", "", "YAML file not found: prod.yaml"),
    ],
)
def test_what_a_short_text_says_is_told(text: str, name: str, says: str):
    is_raised = name in ("exception", "program/not-finite")
    told = diagnose_failure(parse_evidence(FRAMES + text if is_raised else text))
    assert told.name == (name or told.name) and says in told.sentence


@pytest.mark.parametrize(
    "line",
    [
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [algo-1]:29500 "
        "(errno: 97 - Address family not supported by protocol).",
        "algo-1:7:7 [0] NCCL INFO NET/OFI Setting FI_EFA_FORK_SAFE environment variable to 1",
    ],
)
def test_of_what_healthy_jobs_log_nothing_is_said(line: str):
    end = "sagemaker-training-toolkit ERROR    Reporting training FAILURE\nExitCode 1"
    assert (
        diagnose_failure(parse_evidence(f"{line}\nstep 1 loss 2.3\n{end}")).certainty == "unknown"
    )


DISK = "OSError: [Errno 28] No space left on device: 'x'"


@pytest.mark.parametrize(
    "log",
    [
        f"/x/run.sh: line 3:  47 Killed   python build.py\nready\n\n\n\n{DISK}",
        f"ERROR, ignored: {DISK}",
        f"--- Logging error ---\n{DISK}\nstep 1 loss 2.3\nstep 2 loss 2.1",
        "AlgorithmError: openai.RateLimitError: ThrottlingException: Rate exceeded",
        "google.api_core.exceptions.TooManyRequests: 429 ThrottlingException: Rate exceeded",
    ],
    ids=["a death before", "words of handling", "a logger's own", "quoted", "another service"],
)
def test_none_of_these_is_certain(log: str):
    assert diagnose_failure(parse_evidence(log)).certainty != "certain"
