"""Comparison of runs: exactly the differences are shown."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.trainyard.console import compared
from tests.trainyard.console.looking import ROWS, faults, shows, visit
from tests.trainyard.emulator.harness import Cloud, Gate, process_step
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create

pytestmark = pytest.mark.long

OLD = "lr = 1\nfor epoch in range(3):\n    train(epoch)\n"
NEW = "lr = 2\nfor epoch in range(3):\n    train(epoch)\n"


@pytest.fixture(scope="module")
def runs(cloud: Cloud) -> list[str]:
    """Three runs: two with different parameters, code and data; one with the same data
    elsewhere.
    """
    compared.put_code(cloud, "one", OLD)
    two = compared.put_code(cloud, "two", NEW, "new<b>.py", when=1_000)
    compared.put_data(cloud, "data/one/", "81")
    data = compared.put_data(cloud, "data/two/", "93")
    copied = compared.put_data(cloud, "data/copy/", "81")
    compared.create(cloud)
    given = ({}, {"lr": "0.2", "version": two, "data": data}, {"data": copied})
    arns = [cloud.start("flowers", each) for each in given]
    assert [cloud.ended(arn)["PipelineExecutionStatus"] for arn in arns] == ["Succeeded"] * 3
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
    again = create(Account(), "key").test_client()
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
