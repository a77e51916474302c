"""Logs of failed jobs, as programs, AWS and threads have them, and their first causes."""

import pytest

from trainyard.runs.why.diagnosis import SURVIVAL_LINES, Cause, diagnose
from trainyard.runs.why.logged_exceptions import Evidence, line, of_text

TRACEBACK = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 88, in main
    loss = model(batch)
  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1750, in _call
    return forward_call(*args, **kwargs)
{end}"""
CHILD = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 90)
"""


def said(reason: str, status: str = "") -> Cause:
    return diagnose(Evidence(step="Train", reason=reason, status=status))


def logged(*machines: str) -> Cause:
    """A machine's log is a text; their lines alternate."""
    rows = [
        (number, line(f"algo-{host}", number, text))
        for host, log in enumerate(machines, 1)
        for number, text in enumerate(log.splitlines())
    ]
    ordered = tuple(row for _, row in sorted(rows, key=lambda row: row[0]))
    return diagnose(Evidence(step="Train", lines=ordered))


REASONS = {
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
    "different ML instance type.": "aws/capacity",
    "EC2InsufficientCapacityError: Instance type 'ml.g5.48xlarge' is temporarily unavailable in "
    "supported availability zones [euw1-az1].": "aws/capacity",
    "ResourceLimitExceeded: An error occurred (ResourceLimitExceeded) when calling the "
    "CreateTrainingJob operation: The account-level service limit 'ml.p5.48xlarge for training job "
    "usage' is 0 Instances, with current utilization of 0 Instances": "aws/quota",
    "ClientError: TrainingHostAgent Initialization failed:InvalidInputException: SageMaker is "
    "unable to perform: sts:AssumeRole on the role. Check if you have a trust relationship for "
    "'sagemaker.amazonaws.com' to assume the role.": "aws/assume-role",
    "ClientError: User: arn:aws:sts::123456789012:assumed-role/job/SageMaker is not authorized to "
    "perform: ecr:BatchGetImage on resource: arn:aws:ecr:us-east-1:123456789012:repository/x "
    "because no identity-based policy allows": "aws/permission",
    "ClientError: User: arn:aws:sts::123456789012:assumed-role/job/SageMaker is not authorized to "
    "perform: s3:GetObject on resource: arn:aws:s3:::b/k because no permissions boundary allows "
    "the s3:GetObject action": "aws/permission-limit",
    "ClientError: User: arn:aws:sts::123456789012:assumed-role/job/SageMaker is not authorized to "
    "perform: s3:GetObject on resource: arn:aws:s3:::b/k with an explicit deny in a resource-based "
    "policy (statement NoReader of bucket b)": "aws/explicit-deny",
    'ClientError: Data download failed:No S3 objects found under S3 URL "s3://b/none/" given in '
    "input data source.": "aws/no-data",
    "InternalServerError: We encountered an internal error. Please try again.": "aws/internal",
    "The primary container for production variant AllTraffic did not pass the ping health check. "
    "Please check CloudWatch logs for this endpoint.": "aws/ping",
    "AlgorithmError: weights of step 40 are damaged: go on from step 30, exit code: 1": "reason",
    "AlgorithmError: , exit code: 137": "memory/killed",
}


@pytest.mark.parametrize("reason", REASONS, ids=REASONS.get)
def test_what_the_service_says_is_a_cause(reason: str):
    cause = said(reason)
    assert cause.name == REASONS[reason]
    assert cause.certainty == ("likely" if cause.name in ("memory/killed", "reason") else "certain")
    assert cause.lines and "{" not in cause.sentence


def test_what_a_fail_step_says_stands_there_once():
    cause = said("Execution failed due to MSE > 6.0")
    assert (cause.sentence, cause.lines) == ("Execution failed due to MSE > 6.0", ())


@pytest.mark.parametrize(
    ("status", "name"),
    [("Interrupted", "aws/spot"), ("MaxRuntimeExceeded", "aws/time-limit")],
)
def test_a_status_is_a_cause(status: str, name: str):
    assert said("", status).name == name


def test_a_missing_permission_comes_with_the_statement_to_add():
    reason = next(text for text, name in REASONS.items() if name == "aws/permission")
    assert '"Action": "ecr:BatchGetImage"' in said(reason).fix
    assert '"Resource": "arn:aws:ecr:us-east-1:123456789012:repository/x"' in said(reason).fix


LINES = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 39.39 GiB of which 1.2 GiB is free.": "memory/gpu",
    "RuntimeError: DataLoader worker (pid 92) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory.": "memory/shm",
    "OSError: [Errno 28] No space left on device: '/opt/ml/checkpoints/step-100'": "memory/disk",
    "OSError: [Errno 24] Too many open files": "memory/too-many-files",
    "Exception No valid triton configs. OutOfMemoryError: out of resource: triton_mm Required: "
    "114688 Hardware limit:101376": "program/compile",
    "RuntimeError: CUDA error: device-side assert triggered": "hardware/assert",
    "ModuleNotFoundError: No module named 'flash_attn'": "program/module",
    "ERROR: Could not find a version that satisfies the requirement torch==9.9": (
        "program/packages"
    ),
    "train.py: error: unrecognized arguments: --epochs 3": "program/arguments",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution": "program/network",
    "huggingface_hub.errors.GatedRepoError: 401 Client Error.": "program/hub",
    "\tsize mismatch for head.weight: copying a param with shape [10, 4]": "program/state-dict",
    "safetensors_rust.SafetensorError: Error while deserializing header": "program/damaged",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)": "program/record",
    "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train/a.csv'": (
        "program/file"
    ),
    "RuntimeError: Detected mismatch between collectives on ranks.": "ranks/mismatch",
    "RuntimeError: The server socket has failed to listen on any local network address. port: "
    "29500, EADDRINUSE": "ranks/port",
    "algo-1:88:157 [0] find_ofi_provider:543 NCCL WARN NET/OFI Couldn't find any optimal "
    "provider": "ranks/efa-provider",
    "[1,7]<stdout>:ip-1:71:94 [7] NCCL WARN NET/OFI Request completed with error. RC: 21. Error: "
    "unknown error": "ranks/efa",
    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 "
    "clients joined.": "ranks/rendezvous",
}


@pytest.mark.parametrize("text", LINES, ids=LINES.get)
def test_a_known_text_in_a_log_is_a_cause(text: str):
    log = TRACEBACK.format(end=text) + "\n" + CHILD
    cause = logged(log)
    assert cause.name == LINES[text]
    assert text.strip() in [row.strip() for row in cause.lines] and cause.host == "algo-1"
    assert diagnose(of_text(log)).name == LINES[text]


def test_the_first_exception_counts_and_not_what_follows_from_it():
    """Rank 3 raises; the others lose it; launchers report; SageMaker says less still."""
    first = "\n".join(
        f"[rank3]: {row}" for row in TRACEBACK.format(end="KeyError: 'x'").split("\n")
    )
    peer = "RuntimeError: [..] Connection closed by peer [10.0.0.7]:43"
    other = "loading\n" * 7 + TRACEBACK.format(end=peer) + "\n" + CHILD
    cause = logged(other, first)
    assert (cause.name, cause.rank, cause.host) == ("exception", 3, "algo-2")
    assert cause.certainty == "certain"
    assert "rank 3 on algo-2 was the first to raise at train.py:88: KeyError: 'x'" in cause.sentence


def test_of_a_chain_of_exceptions_the_first_is_the_cause():
    chain = (
        TRACEBACK.format(end="ValueError: a record has no label")
        + ("\n\nThe above exception was the direct cause of the following exception:\n\n")
        + TRACEBACK.format(end="RuntimeError: training failed")
    )
    assert "ValueError: a record has no label" in logged(chain).sentence


def test_what_was_survived_is_not_the_cause():
    handled = TRACEBACK.format(end="KeyError: 'a cache'")
    log = handled + "\nstep" * (SURVIVAL_LINES + 5) + "\n" + TRACEBACK.format(end="TypeError: late")
    assert "TypeError: late" in logged(log).sentence


def test_a_collective_that_waited_is_told_where_nothing_came_before():
    text = (
        "[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, Timeout(ms)=600000) "
        "ran for 600060 milliseconds before timing out."
    )
    cause = logged(text)
    assert (cause.name, cause.certainty, cause.rank) == ("ranks/watchdog", "likely", 0)
    assert "ALLREDUCE" in cause.sentence
    assert logged(f"{text}\nlater\n", TRACEBACK.format(end="KeyError: 1")).name == "exception"


def test_what_a_launcher_says_alone_is_no_cause():
    assert logged(CHILD).certainty == "unknown"
    killed = logged(f"{CHILD}  traceback : Signal 9 (SIGKILL) received by PID 90")
    assert (killed.name, killed.certainty) == ("memory/killed", "likely")


def test_a_reason_that_quotes_standard_error_is_read():
    reason = (
        'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "raise KeyError(x)\n '
        'KeyError: \'labels\'"\nCommand "/opt/conda/bin/python3.10 train.py --epochs 3"'
    )
    assert said(reason).sentence == "KeyError: 'labels'"
    traceback = "AlgorithmError: framework error: \n" + TRACEBACK.format(end="ValueError: no rows")
    assert "ValueError: no rows" in said(traceback).sentence


def test_frames_of_rich_and_of_docker_are_taken_off():
    rich = (
        "╭────── Traceback (most recent call last) ──────╮\n│ /opt/ml/code/train.py:4 in main │\n"
        "╰───────────────────────────────╯\nKeyError: 'label'\n"
    )
    assert "KeyError: 'label'" in logged(rich).sentence
    docker = TRACEBACK.format(end="KeyError: 'label'").replace("\n", "\nx7-algo-1-9f  | ")
    assert "KeyError: 'label'" in diagnose(of_text("x7-algo-1-9f  | " + docker)).sentence


def test_nothing_known_is_said_to_be_unknown():
    cause = logged("all is well\nand still")
    assert (cause.name, cause.certainty) == ("unknown", "unknown")
    assert "and still" in cause.lines


def test_hostile_lines_are_shown_as_text_and_cut():
    cause = logged("\x1b]0;title\x07\x1b[31mMemoryError: " + "x" * 10_000_000)
    assert cause.name == "memory/host" and len(cause.lines[0]) < 5_000


def test_an_exception_of_a_worker_is_told_and_not_that_it_was_raised_again():
    again = (
        'Traceback (most recent call last):\n  File "/x/train.py", line 9, in <module>\n'
        "    next(batches)\nRuntimeError: Caught KeyError in DataLoader worker process 0.\n"
        'Original Traceback (most recent call last):\n  File "/x/rows.py", line 3, in get\n'
        "    row[label]\nKeyError: 'label'\n"
    )
    assert "rows.py:3: KeyError: 'label'" in logged(again).sentence


def test_a_traceback_is_read_behind_what_a_logger_writes_before_each_line():
    rows = TRACEBACK.format(end="KeyError: 'label'").split("\n")
    log = "\n".join(f"2026-11-22 10:00:{n:02} [worker 3] {row}" for n, row in enumerate(rows))
    cause = logged(log)
    assert (cause.certainty, "train.py:88: KeyError: 'label'" in cause.sentence) == (
        "certain",
        True,
    )


def test_an_exception_without_a_traceback_is_likely():
    cause = logged("12:00 [main] org.apache.spark.SparkException: Job aborted due to stage failure")
    assert (cause.name, cause.certainty) == ("exception", "likely")
    assert logged("UserWarning: TheError: x").certainty == "unknown"


def test_what_is_logged_as_a_warning_is_not_certain():
    text = "WARNING:x: [Errno 28] No space left on device: 'cache'"
    assert (logged(text).name, logged(text).certainty) == ("memory/disk", "likely")
    assert "ValueError" in logged(f"{text}\n{TRACEBACK.format(end='ValueError: y')}").sentence


def test_an_error_that_is_not_known_is_shown_as_such():
    cause = logged("epoch 1\n2026 [ERROR] the flux capacitor is empty\nbye")
    assert (cause.name, cause.certainty) == ("error", "likely")
    assert "the flux capacitor is empty" in cause.sentence


def test_a_watch_rule_that_stopped_a_training_is_the_cause():
    cause = said(
        "AlgorithmError: stopped by watch rule loss_not_falling after step 120: the gradients "
        "grew tenfold; lower the learning rate; a checkpoint is saved, exit code: 1"
    )
    assert (cause.name, cause.certainty) == ("program/watch-rule", "certain")
    assert "loss_not_falling: the gradients grew tenfold." in cause.sentence
    assert cause.fix.startswith("lower the learning rate")


def test_a_denied_action_is_not_cured_by_an_allow():
    text = (
        "User: arn:aws:sts::123456789012:assumed-role/job/x is not authorized to perform: "
        "s3:GetObject on resource: arn:aws:s3:::b/k with an explicit deny in a service "
        "control policy"
    )
    assert (
        said(text).name == "aws/explicit-deny" and "Allow" not in said(text).fix.partition(":")[0]
    )
    assert "service control policy" in said(text).fix


def test_what_a_text_does_not_tell_leaves_no_hole():
    for reason in ("AlgorithmError: CUDA out of memory", "ResourceLimitExceeded"):
        cause = said(reason)
        assert "?" not in cause.sentence + cause.fix and "()" not in cause.sentence


def test_the_words_of_an_own_exception_are_told_and_what_they_hint_at_is_likely():
    log = (
        'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 9, in <module>\n'
        "    steps = int(settings['steps'])\n"
        "ValueError: invalid literal for int() with base 10: 'no number'\n"
    )
    cause = logged(log)
    assert (cause.name, cause.certainty) == ("program/record", "likely")
    assert "train.py:9: ValueError: invalid literal" in cause.sentence
    assert "This usually means: A record" in cause.sentence
    later = TRACEBACK.format(end="torch.OutOfMemoryError: CUDA out of memory.")
    assert logged(f"{log}{later}").name == "program/record"
    disk = "OSError: [Errno 28] No space left on device"
    full = log.rpartition("ValueError")[0] + disk
    assert (logged(full).name, logged(full).certainty) == ("memory/disk", "certain")
    own = full.replace("steps = int(settings['steps'])", "raise OSError(28, text)")
    assert (logged(own).name, logged(own).certainty) == ("memory/disk", "likely")


def test_a_pasted_piece_of_a_traceback_is_read():
    piece = '  File "train.py", line 3, in f\n    assert rows, "none"\nAssertionError: none\n'
    cause = logged(f"{piece}terminate called\n  what():  CUDA error: driver shutting down")
    assert cause.name == "exception" and "train.py:3: AssertionError: none" in cause.sentence


def test_the_rank_of_a_torchrun_block_is_told():
    block = CHILD + (
        "  traceback : Traceback (most recent call last):\n"
        '    File "/opt/ml/code/train.py", line 5, in main\n      work()\n  KeyError: 2\n'
    )
    assert (logged(block).rank, logged(block).name) == (3, "exception")


def test_what_the_sdk_writes_before_a_reason_is_taken_off():
    text = "UnexpectedStatusException: Error for Training job x: Failed. Reason: AlgorithmError: {}"
    assert diagnose(of_text(text.format("Exit Code: 139"))).name == "hardware/segfault"
    assert diagnose(of_text(text.format("Exit Code: 1"))).certainty == "unknown"
    assert diagnose(of_text(text.format("no rows left, exit code: 1"))).sentence == "no rows left"


HEALTHY = """SM_HPS={"on_error": "fail", "report_to": "wandb"}
ERROR: pip's dependency resolver does not currently take into account all the packages
2026-11-22 10:00:00 Training - Downloading the training image
E tensorflow/cuda_dnn.cc:8310] Unable to register cuDNN factory: it is registered already
W1122 10:00:01.1 9 torch/distributed/run.py:766] Setting OMP_NUM_THREADS to 1 to avoid overload
[W1122 10:00:01 socket.cpp:752] [c10d] The client socket has failed to connect to [algo-1]:7777
ip-1:71:94 [7] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
ip-1:71:94 [7] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin symbol.
ip-1:71:94 [7] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0
UserWarning: This DataLoader will create 8 worker processes, your system may freeze
No GPU detected, running on CPU
{'loss': 1.2, 'grad_norm': inf, 'learning_rate': 0.1}
Gradient overflow. Skipping step, loss scale 32768.0
Some weights of the model were newly initialized: ['head.weight']
pulled the image of a cat; a role of user is not used; callbacks: EarlyStopping
epoch 1: accuracy 0.91, errors: 0
"""


def test_a_healthy_log_has_no_certain_cause_and_hides_none():
    assert logged(HEALTHY).certainty != "certain"
    assert "KeyError: 1" in logged(HEALTHY + TRACEBACK.format(end="KeyError: 1")).sentence


def test_an_exception_that_tells_of_another_process_is_no_cause():
    ended = TRACEBACK.format(end="RuntimeError: one or more processes exited with non-zero status")
    assert logged(ended).certainty == "unknown"
    assert logged(f"{ended}\nExit code: 137").name == "memory/killed"


def test_what_is_tried_again_is_no_cause():
    text = "Insufficient capacity error from EC2 while launching instances, retrying!"
    assert logged(text).certainty == "unknown"


NOTICE = (
    "[emulator] This Python stands in for sagemaker-scikit-learn 1.2-1: "
    "numpy 2.4.1 (there 1.24.1), pandas 3.0.2 (there 1.1.3)"
)
RECORD = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 9, in main
    model.fit(frame, target)
  File "/usr/lib/site-packages/sklearn/utils/validation.py", line 1053, in check_array
    array = _asarray_with_order(array, order=order, dtype=dtype)
ValueError: could not convert string to float: 'AA'"""
REMOVED = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 4, in main
    frame = pd.read_csv(path, squeeze=True)
TypeError: read_csv() got an unexpected keyword argument 'squeeze'"""
OWN = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 4, in main
    raise ValueError("the corpus has no text")
ValueError: the corpus has no text"""


@pytest.mark.parametrize("log", [RECORD, REMOVED])
def test_other_versions_than_the_images_are_a_possible_cause(log: str):
    """Text in pandas 3 has column of dtype object: the data is blamed for it."""
    before, found = logged(log), logged(f"{NOTICE}\n{log}")
    assert "version" not in before.sentence
    assert found.sentence.startswith(before.sentence.rstrip("."))
    assert found.sentence.endswith(
        "It may also be a version: unlike sagemaker-scikit-learn 1.2-1, this Python has "
        "numpy 2.4.1 (there 1.24.1), pandas 3.0.2 (there 1.1.3)"
    )
    assert found.certainty == "likely"
    assert found.fix.endswith("name an interpreter that has the image's: --python PATH")


def test_what_the_program_itself_refuses_is_not_the_versions():
    assert logged(f"{NOTICE}\n{OWN}").sentence == logged(OWN).sentence
    killed = "Killed process 90 (python) total-vm:1kB"
    assert "version" not in logged(f"{NOTICE}\n{killed}").sentence
