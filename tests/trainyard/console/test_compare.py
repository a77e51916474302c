"""Comparison of runs: exactly the differences are shown."""

import gzip
import io
import tarfile
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import ROWS, faults, shows, visit
from tests.trainyard.emulator.harness import (
    Cloud,
    Gate,
    channel,
    process_step,
    s3_input,
    train_step,
)
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create_console_app

pytestmark = pytest.mark.long

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


def join(on: str, *values: object) -> dict[str, dict]:
    return {"Std:Join": {"On": on, "Values": [*values]}}


def below_version(path: str) -> dict[str, dict]:
    return join("/", "s3://bkt", parameter("version"), path)


def create_flowers(cloud: Cloud) -> None:
    """It trains with the code of a folder, and evaluates with that of an archive."""
    run = {"Get": "Execution.PipelineExecutionId"}
    code, data = channel("code", below_version("code")), channel("train", parameter("data"))
    arguments = {
        "HyperParameters": {"lr": join("", parameter("lr")), "run": run, "epochs": "3"},
        "InputDataConfig": [code, data],
        "OutputDataConfig": {"S3OutputPath": join("/", "s3://bkt/runs", run)},
    }
    train = train_step("Train", TRAIN, arguments=arguments)
    measured = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}, ENDLESS]
    train["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = measured
    tools = s3_input("code", below_version("tools/sourcedir.tar.gz"))
    file = {"PropertyFileName": "report", "OutputName": "report", "FilePath": "report.json"}
    evaluate = process_step(
        "Evaluate", REPORT, ("Train",), PropertyFiles=[file],
        outputs={"report": join("/", "s3://bkt/runs", run, "report")},
        arguments={"ProcessingInputs": [s3_input("data", parameter("data")), tools]},
    )  # fmt: skip
    cloud.create("flowers", [train, evaluate], Parameters=PARAMETERS)


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
    """Return a ``.tar.gz``; ``when``: the time in its head, by which its ETag differs."""
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


OLD = "lr = 1\nfor epoch in range(3):\n    train(epoch)\n"
NEW = "lr = 2\nfor epoch in range(3):\n    train(epoch)\n"


@pytest.fixture(scope="module")
def runs(cloud: Cloud) -> list[str]:
    """Two with different parameters, code and data; one with the same data elsewhere."""
    put_code(cloud, "one", OLD)
    two = put_code(cloud, "two", NEW, "new<b>.py", when=1_000)
    put_data(cloud, "data/one/", "81")
    data = put_data(cloud, "data/two/", "93")
    copied = put_data(cloud, "data/copy/", "81")
    create_flowers(cloud)
    given = ({}, {"lr": "0.2", "version": two, "data": data}, {"data": copied})
    arns = [cloud.start("flowers", each) for each in given]
    assert [cloud.wait_for_execution(arn)["PipelineExecutionStatus"] for arn in arns] == [
        "Succeeded"
    ] * 3
    return [f"flowers/{arn.rpartition('/')[2]}" for arn in arns]


def address(console: str, *runs: str, **more: str) -> str:
    query = [*(f"run={run}" for run in runs), *(f"{name}={value}" for name, value in more.items())]
    return f"{console.partition('/?')[0]}/compare?{'&'.join(query)}"


def rows(page) -> dict[str, list[str]]:
    """Return name of each row of all tables → its cells."""
    found = page.locator("table.matrix tbody tr").evaluate_all(ROWS)
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in found}


def test_what_differs_is_shown_and_nothing_else(page, console: str, runs: list[str]):
    page.goto(f"{console.partition('/?')[0]}/runs")
    for run in runs[:2]:
        page.locator(f'input[type=checkbox][value="{run}"]').check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("table.sides tbody tr")).to_have_count(2)
    page.goto(address(console, *runs[:2]))
    accuracy = ["0.81", "0.93", "+0.12 (+14.8%)"]
    shows(lambda: rows(page).get("Evaluate.report.accuracy.value"), accuracy)
    found = rows(page)
    assert found["lr"] == ["0.1", "0.2"]
    assert found["Train: HyperParameters.lr"] == ["0.1", "0.2"]
    assert not [name for name in found if "epochs" in name or "common.py" in name]
    assert found["Train: code/new<b>.py"][0] == "–"
    assert not [name for name in found if "evaluate.py" in name]  # another archive, the same file
    expect(page.locator("#curves figure")).to_contain_text("2 flowers")
    assert faults(page) == []
    visit(page.get_by_role("link", name="changes of Train/code/train.py").first, "Enter")
    expect(page.locator(".diff .removed")).to_have_text(["-lr = 1"])
    expect(page.locator(".diff .added")).to_have_text(["+lr = 2"])
    assert parse_qs(urlsplit(page.url).query)["file"] == ["Train/code/train.py"]
    assert faults(page) == []
    visit(page.get_by_role("link", name="close"))
    visit(page.get_by_role("link", name="show all"))
    assert rows(page)["Train: HyperParameters.epochs"] == ["3", "3"]


def test_data_that_was_overwritten_or_is_gone_is_no_evidence(client, cloud: Cloud, runs):
    where = f"/compare?run={runs[0]}&run={runs[2]}"
    assert "Train: train" not in client.get(where).text  # a copy is the same data
    cloud.put("data/one/score", "99")
    for key in cloud.keys("data/copy/"):
        cloud.s3.delete_object(Bucket="bkt", Key=key)
    again = create_console_app(Account(), "key").test_client()
    again.get("/?key=key")
    said = again.get(where).text
    assert "1 objects were written since" in said
    assert "it no longer has objects" in said


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("run=flowers/nosuchrun123", 200),
        ("run=flowers/nosuchrun123&run=nowhere/x", 200),
        ("run=flowers", 400),
        ("run=a/1&run=a/2&run=a/3", 400),
    ],
)
def test_an_address_that_names_no_runs_says_so(client, query: str, status: int):
    assert client.get(f"/compare?{query}").status_code == status


def test_a_run_is_followed_beside_others(page, console: str, cloud: Cloud, runs: list[str]):
    gate = Gate(cloud)
    cloud.create("going", [process_step("Slow", gate.wait)])
    going = f"going/{cloud.start('going').rpartition('/')[2]}"
    page.goto(address(console, runs[0], going))
    page.wait_for_selector("td.Executing")
    gate.open()
    page.wait_for_selector("table.sides td.Executing", state="detached")
    shows(lambda: "Slow: status" in rows(page), True)
