"""Runs that differ in what users compare: parameters, code, data and metrics."""

import gzip
import io
import tarfile

from tests.trainyard.emulator.harness import Cloud, channel, process_step, s3_input, train_step

PARAMETERS = [
    {"Name": "lr", "Type": "Float", "DefaultValue": 0.1},
    {"Name": "version", "Type": "String", "DefaultValue": "one"},
    {"Name": "data", "Type": "String", "DefaultValue": "s3://bkt/data/one/"},
]
TRAIN = f"""
for i in 3 2 1; do echo "step=$((4-i)) loss=0.$i"; done
echo word={"a" * 60}!
"""
ENDLESS = {"Name": "word", "Regex": "word=((a|aa)+)$"}
"""Metric definition whose expression takes too long on TRAIN's last line."""
REPORT = """
echo "{\\"accuracy\\": {\\"value\\": 0.$(cat /opt/ml/processing/data/score)}}" \
  > /opt/ml/processing/report/report.json
"""


def parameter(name: str) -> dict[str, str]:
    return {"Get": f"Parameters.{name}"}


def below_version(path: str) -> dict[str, dict]:
    return {"Std:Join": {"On": "/", "Values": ["s3://bkt", parameter("version"), path]}}


def create(cloud: Cloud, name: str = "flowers") -> None:
    """Create a pipeline that trains with the code of a folder, and evaluates with that of an
    archive.
    """
    run = {"Get": "Execution.PipelineExecutionId"}
    report = {"Std:Join": {"On": "/", "Values": ["s3://bkt/runs", run, "report"]}}
    train = train_step(
        "Train",
        TRAIN,
        arguments={
            "HyperParameters": {
                "lr": {"Std:Join": {"On": "", "Values": [parameter("lr")]}},
                "run": run,
                "epochs": "3",
            },
            "InputDataConfig": [
                channel("code", below_version("code")),
                channel("train", parameter("data")),
            ],
            "OutputDataConfig": {
                "S3OutputPath": {"Std:Join": {"On": "/", "Values": ["s3://bkt/runs", run]}}
            },
        },
    )
    train["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = [
        {"Name": "loss", "Regex": "loss=([0-9.]+)"},
        ENDLESS,
    ]
    tools = below_version("tools/sourcedir.tar.gz")
    evaluate = process_step(
        "Evaluate",
        REPORT,
        ("Train",),
        outputs={"report": report},
        arguments={
            "ProcessingInputs": [s3_input("data", parameter("data")), s3_input("code", tools)]
        },
        PropertyFiles=[
            {"PropertyFileName": "report", "OutputName": "report", "FilePath": "report.json"}
        ],
    )
    cloud.create(name, [train, evaluate], Parameters=PARAMETERS)


def put_code(cloud: Cloud, version: str, script: str, *more: str, when: int = 0) -> str:
    """Upload a folder with ``train.py`` and further files, and an archive with ``evaluate.py``."""
    cloud.put(f"{version}/code/train.py", script)
    cloud.put(f"{version}/code/common.py", "SAME = 1\n")
    for name in more:
        cloud.put(f"{version}/code/{name}", "<script>alert(1)</script>\n")
    tools = archive({"./evaluate.py": b"print('the same')\n"}, when)
    cloud.put(f"{version}/tools/sourcedir.tar.gz", tools)
    return version


def put_data(cloud: Cloud, folder: str, score: str) -> str:
    cloud.put(f"{folder}rows.csv", "1,2\n")
    cloud.put(f"{folder}score", score)
    return f"s3://bkt/{folder}"


def archive(files: dict[str, bytes], when: int = 0) -> bytes:
    """Return a ``.tar.gz``; ``when``: the time in its head, so that equal contents get another
    ETag.
    """
    found = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=found, mode="wb", mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return found.getvalue()
