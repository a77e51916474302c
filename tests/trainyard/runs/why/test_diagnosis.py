"""Logs of failed jobs, as programs, AWS and threads have them, and their first causes."""

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.runs.why.diagnosis import SURVIVAL_LINES, Cause, diagnose_failure
from trainyard.runs.why.logged_exceptions import SIGNATURES, Evidence, make_line, parse_evidence

TRACEBACK = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 88, in main
    loss = model(batch)
  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1750, in _call
    return forward_call(*args, **kwargs)
{end}"""
LABEL = TRACEBACK.format(end="KeyError: 'label'")
DISK = "OSError: [Errno 28] No space left on device"
CHILD = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 90)
"""


def diagnose_reason(reason: str, status: str = "") -> Cause:
    return diagnose_failure(Evidence(step="Train", reason=reason, status=status))


def diagnose_machine_logs(*machines: str) -> Cause:
    """A machine's log is a text; their lines alternate."""
    rows = [
        (number, make_line(f"algo-{host}", number, text))
        for host, log in enumerate(machines, 1)
        for number, text in enumerate(log.splitlines(), 1)
    ]
    ordered = tuple(row for _, row in sorted(rows, key=lambda row: row[0]))
    return diagnose_failure(Evidence(step="Train", lines=ordered))


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda one: one.name)
def test_a_signature_says_what_it_means_what_to_do_and_where_it_is_from(signature):
    assert [one.name for one in SIGNATURES].count(signature.name) == 1 and len(SIGNATURES) > 50
    assert signature.level in ("service", "cause", "hint", "likely", "consequence")
    assert signature.cause.endswith(".") and signature.source and len(signature.fix) > 20
    every = filter(None, (signature.pattern, signature.wording))
    groups = {group for one in every for group in one.groupindex}
    for text in (signature.cause, signature.fix):
        assert {name for _, name, _, _ in string.Formatter().parse(text) if name} <= groups


JOB = "User: arn:aws:sts::123456789012:assumed-role/job/SageMaker is not authorized to perform: "
REASONS = {
    "CapacityError: Unable to provision requested ML compute capacity. Please retry": (
        "aws/capacity"
    ),
    "EC2InsufficientCapacityError: Instance type 'ml.g5.48xlarge' is temporarily unavailable in "
    "supported availability zones [euw1-az1].": "aws/capacity",
    "ResourceLimitExceeded: An error occurred (ResourceLimitExceeded) when calling the "
    "CreateTrainingJob operation: The account-level service limit 'ml.p5.48xlarge for training job "
    "usage' is 0 Instances, with current utilization of 0 Instances": "aws/quota",
    "ClientError: TrainingHostAgent Initialization failed:InvalidInputException: SageMaker is "
    "unable to perform: sts:AssumeRole on the role. Check if you have a trust relationship for "
    "'sagemaker.amazonaws.com' to assume the role.": "aws/assume-role",
    f"ClientError: {JOB}ecr:BatchGetImage on resource: "
    "arn:aws:ecr:us-east-1:123456789012:repository/x because no identity-based policy allows": (
        "aws/permission"
    ),
    f"ClientError: {JOB}s3:GetObject on resource: arn:aws:s3:::b/k because no permissions boundary "
    "allows the s3:GetObject action": "aws/permission-limit",
    f"ClientError: {JOB}s3:GetObject on resource: arn:aws:s3:::b/k with an explicit deny in a "
    "service control policy": "aws/explicit-deny",
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
    cause = diagnose_reason(reason)
    assert cause.name == REASONS[reason]
    assert cause.certainty == ("likely" if cause.name in ("memory/killed", "reason") else "certain")
    assert cause.lines and "{" not in cause.sentence
    if cause.name == "aws/permission":  # the statement to add
        assert '"Action": "ecr:BatchGetImage"' in cause.fix
        assert '"Resource": "arn:aws:ecr:us-east-1:123456789012:repository/x"' in cause.fix
    if cause.name == "aws/explicit-deny":  # which no Allow cures
        assert "Allow" not in cause.fix.partition(":")[0] and "service control policy" in cause.fix


def test_what_the_service_says_is_told_as_it_is():
    cause = diagnose_reason("Execution failed due to MSE > 6.0")
    assert (cause.sentence, cause.lines) == ("Execution failed due to MSE > 6.0", ())
    assert diagnose_reason("", "Interrupted").name == "aws/spot"
    assert diagnose_reason("", "MaxRuntimeExceeded").name == "aws/time-limit"
    quoting = (
        'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "raise KeyError(x)\n '
        'KeyError: \'labels\'"\nCommand "/opt/conda/bin/python3.10 train.py --epochs 3"'
    )
    assert diagnose_reason(quoting).sentence == "KeyError: 'labels'"
    assert (
        "KeyError: 'label'"
        in diagnose_reason(f"AlgorithmError: framework error: \n{LABEL}").sentence
    )
    for reason in ("AlgorithmError: CUDA out of memory", "ResourceLimitExceeded"):
        cause = diagnose_reason(reason)  # what it does not tell leaves no hole
        assert "?" not in cause.sentence + cause.fix and "()" not in cause.sentence


def test_what_the_sdk_writes_before_a_reason_is_taken_off():
    text = "UnexpectedStatusException: Error for Training job x: Failed. Reason: AlgorithmError: {}"
    assert (
        diagnose_failure(parse_evidence(text.format("Exit Code: 139"))).name == "hardware/segfault"
    )
    assert diagnose_failure(parse_evidence(text.format("Exit Code: 1"))).certainty == "unknown"
    assert (
        diagnose_failure(parse_evidence(text.format("no rows left, exit code: 1"))).sentence
        == "no rows left"
    )


def test_a_watch_rule_that_stopped_a_training_is_the_cause():
    cause = diagnose_reason(
        "AlgorithmError: stopped by watch rule loss_not_falling after step 120: the gradients "
        "grew tenfold; lower the learning rate; a checkpoint is saved, exit code: 1"
    )
    assert (cause.name, cause.certainty) == ("program/watch-rule", "certain")
    assert "loss_not_falling: the gradients grew tenfold." in cause.sentence
    assert cause.fix.startswith("lower the learning rate")


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
    "ERROR: Could not find a version that satisfies the requirement t==9.9": "program/packages",
    "train.py: error: unrecognized arguments: --epochs 3": "program/arguments",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution": "program/network",
    "huggingface_hub.errors.GatedRepoError: 401 Client Error.": "program/hub",
    "\tsize mismatch for head.weight: copying a param with shape [10, 4]": "program/state-dict",
    "safetensors_rust.SafetensorError: Error while deserializing header": "program/damaged",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)": "program/record",
    "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/a.csv'": "program/file",
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
    cause = diagnose_machine_logs(log)
    assert cause.name == LINES[text]
    assert text.strip() in [row.strip() for row in cause.lines] and cause.host == "algo-1"
    assert diagnose_failure(parse_evidence(log)).name == LINES[text]


CACHE = TRACEBACK.format(end="KeyError: 'a cache'")
HANDLING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
CLOSED = "\n\nThe above exception was the direct cause of the following exception:\n\n"
FAILED = TRACEBACK.format(end="RuntimeError: training failed")
ENDED = TRACEBACK.format(end="RuntimeError: one or more processes exited with non-zero status")
REQUEST = "An error occurred (ValidationException) when calling the CreatePipeline operation: "
PIECE = '  File "train.py", line 3, in f\n    assert rows, "none"\nAssertionError: none\n'
WORKER = (
    'Traceback (most recent call last):\n  File "/x/train.py", line 9, in <module>\n'
    "    next(batches)\nRuntimeError: Caught KeyError in DataLoader worker process 0.\n"
    'Original Traceback (most recent call last):\n  File "/x/rows.py", line 3, in get\n'
    "    row[label]\nKeyError: 'label'\n"
)
BLOCK = CHILD + (
    "  traceback : Traceback (most recent call last):\n"
    '    File "/opt/ml/code/train.py", line 5, in main\n      work()\n  KeyError: 2\n'
)
RICH = (
    "╭────── Traceback (most recent call last) ──────╮\n│ /opt/ml/code/train.py:4 in main │\n"
    "╰───────────────────────────────╯\nKeyError: 'label'\n"
)
SPARK = "12:00 [main] org.apache.spark.SparkException: Job aborted due to stage failure"
ENDLESS = "\x1b]0;title\x07\x1b[31mMemoryError: " + "x" * 10_000_000
LATE = CACHE + "\nstep" * (SURVIVAL_LINES + 5) + "\n" + TRACEBACK.format(end="TypeError: late")
GONE = "the tokenizer does not exist in the folder"
LOGS = {
    "nothing known": ("all is well\nand still", "unknown", ""),
    "what a launcher says alone": (CHILD, "unknown", ""),
    "a launcher's signal": (f"{CHILD}  traceback : Signal 9 (SIGKILL)", "likely memory/killed", ""),
    "the first of a chain": (CACHE + CLOSED + FAILED, "certain exception", "KeyError: 'a cache'"),
    "a word for the first": (CACHE + HANDLING + FAILED, "exception", "KeyError: 'a cache'"),
    "one while handling": (
        CACHE + HANDLING + TRACEBACK.format(end=DISK),
        "disk",
        "A disk was full",
    ),
    "what was survived": (LATE, "exception", "TypeError: late"),
    "a frame of rich": (RICH, "exception", "KeyError: 'label'"),
    "a worker's exception raised again": (WORKER, "exception", "rows.py:3: KeyError: 'label'"),
    "an exception without a traceback": (SPARK, "likely exception", "stage failure"),
    "a warning that names one": ("UserWarning: TheError: x", "unknown", ""),
    "one that a line names": ("loading\nException: an odd 'x'", "likely exception", "an odd 'x'"),
    "a warning": (f"WARNING:x: {DISK}: 'cache'", "likely memory/disk", ""),
    "an exception after a warning": (f"WARNING:x: {DISK}\n{LABEL}", "exception", "KeyError"),
    "an unknown error": ("2026 [ERROR] the flux is empty\nbye", "likely error", "flux is empty"),
    "a failure that is stated": (f"step 1\n{GONE}", "likely error", ""),
    "a failure that was dealt with": (f"{GONE}, using the default", "unknown", ""),
    "that something failed": ("step 1\nRank 1 crashed with exit code 1.", "unknown", ""),
    "an error somewhere": ("ERROR: There was an error in the training script.", "unknown", ""),
    "a healthy program's warning": (
        "x.py:9: UserWarning: could not find a checkpoint, failed to load state dict\nstep 1",
        "unknown",
        "",
    ),
    "another process": (ENDED, "unknown", ""),
    "another process's status": (f"{ENDED}\nExit code: 137", "memory/killed", ""),
    "what is tried again": ("Insufficient capacity error from EC2, retrying!", "unknown", ""),
    "the words of one and a wording of another": (
        f"{REQUEST}Unable to parse pipeline definition. Expecting start of Json.",
        "unnamed/request",
        "Expecting start of Json",
    ),
    "a pasted piece": (f"{PIECE}terminate called", "exception", "train.py:3: AssertionError: none"),
    **{
        f"a lower-case name, {end}": (TRACEBACK.format(end=end), "", f"train.py:88: {end}")
        for end in ("cv2.error: (-215) empty", "socket.timeout: timed out", "struct.error: 4 bytes")
    },
}


@pytest.mark.parametrize(("log", "told", "says"), LOGS.values(), ids=LOGS)
def test_a_log_has_its_first_cause(log: str, told: str, says: str):
    """``diagnose_dressed_log``: the cause's name, after its certainty where that matters."""
    cause = diagnose_machine_logs(log)
    assert told in f"{cause.certainty} {cause.name}" and says in cause.sentence


def test_what_is_shown_of_a_log_is_its_end_as_text_and_cut():
    assert "and still" in diagnose_machine_logs("all is well\nand still").lines
    cause = diagnose_machine_logs(ENDLESS)
    assert cause.name == "memory/host" and len(cause.lines[0]) < 5_000
    assert (diagnose_machine_logs(BLOCK).rank, diagnose_machine_logs(BLOCK).name) == (
        3,
        "exception",
    )


def test_the_first_exception_counts_and_not_what_follows_from_it():
    """Rank 3 raises; the others lose it; launchers report; SageMaker says less still."""
    first = "\n".join(f"[rank3]: {row}" for row in LABEL.split("\n"))
    peer = "RuntimeError: [..] Connection closed by peer [10.0.0.7]:43"
    other = "loading\n" * 7 + TRACEBACK.format(end=peer) + "\n" + CHILD
    cause = diagnose_machine_logs(other, first)
    assert (cause.name, cause.rank, cause.host) == ("exception", 3, "algo-2")
    assert cause.certainty == "certain"
    words = "rank 3 on algo-2 was the first to raise at train.py:88: KeyError: 'label'"
    assert words in cause.sentence


def test_the_first_exception_is_found_behind_those_of_all_other_ranks():
    """Their traces are no work that the machine did after it."""
    frames = '  File "/lib/python3/site-packages/torch/x.py", line 9, in g\n' * 30
    end = "torch.distributed.DistBackendError: NCCL error: remote process exited"
    other = f"Traceback (most recent call last):\n{frames}{end}"
    log = [f"[rank5]: {row}" for row in LABEL.split("\n")]
    log += [f"[rank{rank}]: {row}" for rank in range(20) for row in other.split("\n")]
    cause = diagnose_machine_logs("\n".join(log))
    assert (cause.rank, cause.certainty) == (5, "certain")
    assert "train.py:88: KeyError: 'label'" in cause.sentence


def test_a_collective_that_waited_is_told_where_nothing_came_before():
    text = (
        "[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, Timeout(ms)=600000) "
        "ran for 600060 milliseconds before timing out."
    )
    cause = diagnose_machine_logs(text)
    assert (cause.name, cause.certainty, cause.rank) == ("ranks/watchdog", "likely", 0)
    assert "ALLREDUCE" in cause.sentence
    assert diagnose_machine_logs(f"{text}\nlater\n", LABEL).name == "exception"


def test_the_words_of_an_own_exception_are_told_and_what_they_hint_at_is_likely():
    log = (
        'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 9, in <module>\n'
        "    steps = int(settings['steps'])\n"
        "ValueError: invalid literal for int() with base 10: 'no number'\n"
    )
    cause = diagnose_machine_logs(log)
    assert (cause.name, cause.certainty) == ("program/record", "likely")
    assert "train.py:9: ValueError: invalid literal" in cause.sentence
    assert "This usually means: A record" in cause.sentence
    later = TRACEBACK.format(end="torch.OutOfMemoryError: CUDA out of memory.")
    assert diagnose_machine_logs(f"{log}{later}").name == "program/record"
    full = log.rpartition("ValueError")[0] + DISK
    assert (diagnose_machine_logs(full).name, diagnose_machine_logs(full).certainty) == (
        "memory/disk",
        "certain",
    )
    own = full.replace("steps = int(settings['steps'])", "raise OSError(28, text)")
    assert (diagnose_machine_logs(own).name, diagnose_machine_logs(own).certainty) == (
        "memory/disk",
        "likely",
    )


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
    assert diagnose_machine_logs(HEALTHY).certainty != "certain"
    assert "KeyError: 'label'" in diagnose_machine_logs(HEALTHY + LABEL).sentence


DRESSES: dict[str, Callable[[str, int], str]] = {
    "carriage returns": lambda row, _: row + "\r",
    "an indentation": lambda row, _: "      " + row,
    "a thread's quotation": lambda row, _: f"> {row}",
    "CloudWatch's times": lambda row, n: f"2026-11-23T10:00:{n:02d}.123Z {row}",
    "a container's times": lambda row, n: f"[2026-11-23 10:00:{n:02d},123] {row}",
    "a logger's words": lambda row, n: f"2026-11-22 10:00:{n:02} [worker 3] {row}",
    "a rank": lambda row, _: f"[rank3]: {row}",
    "docker compose": lambda row, _: f"algo-1-x7k2_1  | {row}",
}


@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES)
def test_a_dressed_log_has_the_cause_of_the_bare_one(dress: Callable[[str, int], str]):
    def diagnose_dressed_log(log: str) -> Cause:
        rows = log.splitlines()
        return diagnose_failure(
            parse_evidence("\n".join(dress(row, n) for n, row in enumerate(rows)))
        )

    assert diagnose_dressed_log(LABEL).certainty == "certain"
    assert (
        "train.py:88: KeyError: 'label'"
        in diagnose_dressed_log(f"step 3 loss 2.31\n{LABEL}").sentence
    )
    full = diagnose_dressed_log(f"step 3 loss 2.31\n{TRACEBACK.format(end=DISK)}: 'x'")
    assert full.sentence.startswith("A disk was full")


TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=10)


@given(before=TEXTS, after=TEXTS)
def test_any_text_has_an_answer(before: list[str], after: list[str]):
    told = diagnose_failure(parse_evidence("\n".join([*before, LABEL, *after])))
    assert told.sentence and told.certainty in ("certain", "likely", "unknown")


NOTICE = (
    "[emulator] This Python stands in for sagemaker-scikit-learn 1.2-1: "
    "numpy 2.4.1 (there 1.24.1), pandas 3.0.2 (there 1.1.3)"
)
FRAME = 'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 9, in main\n'
RECORD = f"""{FRAME}    model.fit(frame, target)
  File "/usr/lib/site-packages/sklearn/utils/validation.py", line 1053, in check_array
    array = _asarray_with_order(array, order=order, dtype=dtype)
ValueError: could not convert string to float: 'AA'"""
REMOVED = f"""{FRAME}    frame = pd.read_csv(path, squeeze=True)
TypeError: read_csv() got an unexpected keyword argument 'squeeze'"""
OWN = f"""{FRAME}    raise ValueError("the corpus has no text")
ValueError: the corpus has no text"""


@pytest.mark.parametrize("log", [RECORD, REMOVED])
def test_other_versions_than_the_images_are_a_possible_cause(log: str):
    """Text in pandas 3 has column of dtype object: the data is blamed for it."""
    before, found = diagnose_machine_logs(log), diagnose_machine_logs(f"{NOTICE}\n{log}")
    assert "version" not in before.sentence
    assert found.sentence.startswith(before.sentence.rstrip("."))
    assert found.sentence.endswith(
        "It may also be a version: unlike sagemaker-scikit-learn 1.2-1, this Python has "
        "numpy 2.4.1 (there 1.24.1), pandas 3.0.2 (there 1.1.3)"
    )
    assert found.certainty == "likely"
    assert found.fix.endswith("name an interpreter that has the image's: --python PATH")


def test_what_the_program_itself_refuses_is_not_the_versions():
    assert diagnose_machine_logs(f"{NOTICE}\n{OWN}").sentence == diagnose_machine_logs(OWN).sentence
    killed = "Killed process 90 (python) total-vm:1kB"
    assert "version" not in diagnose_machine_logs(f"{NOTICE}\n{killed}").sentence
