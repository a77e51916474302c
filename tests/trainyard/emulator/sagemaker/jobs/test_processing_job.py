"""Processing jobs: inputs, one process per instance, outputs."""

import json

import botocore.exceptions
import pytest

from tests.trainyard.emulator.harness import Cloud, processing, s3_input, until

pytestmark = pytest.mark.long


NOWHERE = {"out": "s3://nowhere/out"}
SPREAD = {"part": "ShardedByS3Key", "all": "FullyReplicated"}


@pytest.fixture(scope="module", autouse=True)
def raw(aws: Cloud) -> None:
    for number in range(5):
        aws.put(f"raw/{number}.txt", f"file {number}")


def test_inputs_are_sharded_and_outputs_come_together(aws: Cloud) -> None:
    script = """
        cat /opt/ml/processing/part/* > /opt/ml/processing/out/$HOSTNAME.txt
        cp /opt/ml/config/*.json /opt/ml/processing/out/
        ls /opt/ml/processing/all | wc -l
    """
    part, whole = (s3_input(name, "s3://bkt/raw", kind) for name, kind in SPREAD.items())
    request = processing(script, nodes=2, outputs={"out": "s3://bkt/out"})
    done = aws.process("sharded", "", **request, ProcessingInputs=[part, whole])
    assert done["ProcessingJobStatus"] == "Completed"
    assert aws.get("out/algo-1.txt") == b"file 0file 2file 4"
    assert aws.get("out/algo-2.txt") == b"file 1file 3"
    assert json.loads(aws.get("out/resourceconfig.json"))["hosts"] == ["algo-1", "algo-2"]
    config = json.loads(aws.get("out/processingjobconfig.json"))
    assert config["ProcessingJobArn"] == done["ProcessingJobArn"]
    assert aws.log("Processing", "sharded", "algo-2") == ["5"]


def test_inputs_may_lie_side_by_side_in_one_folder(aws: Cloud) -> None:
    inputs = [s3_input(f"raw/{n}", f"s3://bkt/raw/{n}") for n in (1, 3)]
    script = "cd /opt/ml/processing/raw; cat 1/* 3/*; ls | wc -l"
    aws.process("beside", script, ProcessingInputs=inputs)
    assert aws.log("Processing", "beside", "algo-1") == ["file 1file 32"]


def test_a_script_that_raises(aws: Cloud) -> None:
    code = aws.put("code/job.py", 'print("reading")\nraise ValueError("the corpus has no text")')
    request = processing("", outputs={"out": "s3://bkt/raises"})
    request["AppSpecification"] |= {
        "ContainerEntrypoint": ["python3", "/opt/ml/processing/code/job.py"],
        "ContainerArguments": ["--x", "1"],
    }
    done = aws.process("raises", "", **request, ProcessingInputs=[s3_input("code", code)])
    assert done["ProcessingJobStatus"] == "Failed"
    reason = "AlgorithmError: ValueError: the corpus has no text, exit code: 1"
    assert done["FailureReason"] == reason
    assert aws.keys("raises/") == []


def test_the_jobs_own_message_and_a_missing_prefix_in_awss_words(aws: Cloud) -> None:
    done = aws.process("message", "echo 'no files in raw/' > /opt/ml/output/message; exit 1")
    assert done["FailureReason"] == "AlgorithmError: no files in raw/, exit code: 1"
    done = aws.process("missing", "true", ProcessingInputs=[s3_input("in", "s3://bkt/nope")])
    start = 'ClientError: No S3 objects found under S3 URL "s3://bkt/nope" given in input data'
    assert done["FailureReason"].startswith(start)


def test_one_failing_instance_fails_the_job_and_uploads_nothing(aws: Cloud) -> None:
    script = "echo x > /opt/ml/processing/out/x; [ $HOSTNAME = algo-1 ] || exit 5; sleep 600"
    request = processing(script, nodes=2, outputs={"out": "s3://bkt/half"})
    done = aws.process("half", "", **request)
    assert done["FailureReason"].endswith("exit code: 5")
    assert aws.keys("half") == []


def test_an_output_bucket_that_does_not_exist(aws: Cloud) -> None:
    """It is named with its output before the job runs; one that goes meanwhile, at the end."""
    failed = "ClientError: Artifact upload failed:Unable to upload {} (NoSuchBucket: The specified "
    failed += "bucket does not exist)"
    done = aws.process("nobucket", "exit 7", **processing("exit 7", outputs=NOWHERE))
    place = "to s3://nowhere/out, of output 'out'"
    assert done["FailureReason"] == f"{failed.format(place)}: create nowhere, or name another"
    aws.s3.create_bucket(Bucket="nowhere")
    script = "echo x > /opt/ml/processing/out/x; echo begun; sleep 1.5"
    aws.sm.create_processing_job(ProcessingJobName="gone", **processing(script, outputs=NOWHERE))
    until(lambda: aws.processes("gone"))
    aws.s3.delete_bucket(Bucket="nowhere")
    describe = lambda: aws.sm.describe_processing_job(ProcessingJobName="gone")  # noqa: E731
    done = until(lambda: d if (d := describe())["ProcessingJobStatus"] == "Failed" else None)
    assert done["FailureReason"] == failed.format("file to s3://nowhere/out/x")


@pytest.mark.parametrize("mode", ["EndOfJob", "Continuous"])
def test_an_output_whose_name_is_not_utf_8_is_named(aws: Cloud, mode: str) -> None:
    script = r"x=$(printf 'caf\351.txt'); cd /opt/ml/processing/out; "
    script += 'echo 1 > a; echo 2 > "$x"; echo 3 > z; sleep 1.2'
    name = f"latin{mode}"
    request = processing(script, outputs={"out": f"s3://bkt/{name}"})
    request["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3UploadMode"] = mode
    done = aws.process(name, "", **request)
    start = (
        f"ClientError: Artifact upload failed:the file b'caf\\xe9.txt' for s3://bkt/{name} has a"
    )
    end = "name that is not UTF-8, which keys in S3 must be; let the job rename it"
    assert done["FailureReason"] == f"{start} {end}"
    whole = [f"{name}/a", f"{name}/z"] if mode == "Continuous" else []
    assert aws.keys(name) == whole
    failed = aws.process(f"{name}2", "", **request | processing(f"{script}; exit 5"))
    assert failed["FailureReason"].endswith("exit code: 5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ProcessingInputs": [s3_input("../x", "s3://bkt/raw")]}, "must be under /opt/ml/proc"),
        ({"ProcessingInputs": [s3_input("in", "https://bkt/raw")]}, "is not an S3 URI"),
        ({"ProcessingInputs": [s3_input("in", "s3://bkt/raw"), s3_input("in/", "s3://bkt/raw")]},
         "'in/': .* of 'in'"),
        ({"AppSpecification": {"ImageUri": "tensorflow:2"}}, "image 'tensorflow:2' is not known"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_at_once(aws: Cloud, change: dict, message: str) -> None:
    with pytest.raises(botocore.exceptions.ClientError, match=message):
        aws.process("refused", "true", **change)


def test_stopping_uploads_nothing(aws: Cloud) -> None:
    script = "echo x > /opt/ml/processing/out/x; sleep 30"
    request = processing(script, outputs={"out": "s3://bkt/stopped"})
    aws.sm.create_processing_job(ProcessingJobName="stop", **request)
    assert aws.processes("stop")
    aws.sm.stop_processing_job(ProcessingJobName="stop")
    waiter = aws.sm.get_waiter("processing_job_completed_or_stopped")
    waiter.wait(ProcessingJobName="stop", WaiterConfig={"Delay": 1})
    answer = aws.sm.describe_processing_job(ProcessingJobName="stop")
    assert answer["ProcessingJobStatus"] == "Stopped"
    assert aws.keys("stopped") == []


def test_what_the_application_manages_is_neither_downloaded_nor_uploaded(aws: Cloud) -> None:
    script = "cd /opt/ml/processing; ls; mkdir out; echo x > out/x"
    source = s3_input("own", "s3://bkt/nowhere/at-all") | {"AppManaged": True}
    request = processing(script, outputs={"out": "s3://bkt/managed"})
    request["ProcessingInputs"] = [source]
    request["ProcessingOutputConfig"]["Outputs"][0]["AppManaged"] = True
    done = aws.process("managed", "", **request)
    assert done["ProcessingJobStatus"] == "Completed", done.get("FailureReason")
    assert aws.log("Processing", "managed") == []
    assert aws.keys("managed") == []
