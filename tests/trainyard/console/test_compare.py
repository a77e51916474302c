"""Runs side by side: what differs between them is shown, and nothing else."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.trainyard.console import compared
from tests.trainyard.console.looking import ROWS, faults, shows, visit
from tests.trainyard.emulator.harness import Cloud, process_step, until, wait_for

OLD = "lr = 1\nfor epoch in range(3):\n    train(epoch)\n"
NEW = "lr = 2\nfor epoch in range(3):\n    train(epoch)\n"


@pytest.fixture(scope="module")
def runs(cloud: Cloud) -> list[str]:
    """Three runs: with other parameters, code and data; with the same data at another place."""
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


def lines(page, table: str) -> dict[str, list[str]]:
    """Name of each row of a table → its cells."""
    rows = page.locator(f"table.matrix-{table} tbody tr:has(td)").evaluate_all(ROWS)
    return {name.strip(" ⇅▲▼\n"): [cell.strip() for cell in cells] for name, *cells in rows}


def test_what_differs_is_shown_and_nothing_else(page, console: str, runs: list[str]):
    for step in ("Train", "Evaluate"):  # what other pages have read is theirs
        page.goto(f"{console.partition('/?')[0]}/runs/{runs[0]}/{step}")
    page.goto(f"{console.partition('/?')[0]}/runs")
    for run in runs[:2]:
        page.locator(f'input[type=checkbox][value="{run}"]').check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("table.sides tbody tr")).to_have_count(2)
    page.goto(address(console, *runs))
    accuracy = ["0.81", "≠ 0.93\n+0.12 (+14.8%)", "= 0.81"]
    shows(lambda: lines(page, "metrics"), {"Evaluate.report.accuracy.value": accuracy})
    settings = lines(page, "settings")
    assert list(settings) == ["lr", "version", "data", "HyperParameters.lr"]
    assert settings["lr"] == ["0.1", "≠ 0.2", "= 0.1"]
    code = lines(page, "code")
    assert list(code) == ["code/new<b>.py", "code/train.py"]
    assert [cell[:1] for cell in code["code/train.py"]] == [code["code/train.py"][0][:1], "≠", "="]
    data = lines(page, "data")
    assert [cell[:1] for cell in data["train"]] == ["s", "≠", "="]
    assert "2 objects, 6 bytes" in data["train"][2]
    assert faults(page) == []
    _plots_them_together(page)
    _shows_a_file(page)
    _keeps_what_is_chosen(page, runs)


def _plots_them_together(page) -> None:
    expect(page.locator("#curves figure")).to_have_count(1)
    expect(page.locator("#curves figure")).to_contain_text("run 3")
    for run in ("Run 1", "Run 2", "Run 3"):
        told = page.get_by_text(f"{run}: metric word: its Regex")
        expect(told).to_have_count(1)
    page.locator("#curves-x").select_option("since the start")
    visit(page.locator("#draw-curves"), "Enter")
    assert parse_qs(urlsplit(page.url).query)["x"] == ["since the start"]
    expect(page.locator("#curves figure")).to_have_count(1)


def _shows_a_file(page) -> None:
    link = page.get_by_role("link", name="changes of code/train.py in run 2")
    visit(link, "Enter")
    expect(page.locator(".diff .removed")).to_have_text(["-lr = 1"])
    expect(page.locator(".diff .added")).to_have_text(["+lr = 2"])
    assert parse_qs(urlsplit(page.url).query)["file"] == ["Train/code/train.py"]
    assert faults(page) == []


def _keeps_what_is_chosen(page, runs: list[str]) -> None:
    visit(page.get_by_role("link", name="close"))
    visit(page.get_by_role("link", name="make run 2 the baseline"))
    assert lines(page, "settings")["lr"] == ["≠ 0.1", "0.2", "≠ 0.1"]
    visit(page.get_by_role("link", name="sort the runs by Evaluate.report.accuracy.value"))
    visit(page.get_by_role("link", name="sort the runs by Evaluate.report.accuracy.value"))
    assert lines(page, "settings")["lr"] == ["0.2", "≠ 0.1", "≠ 0.1"]
    visit(page.get_by_role("link", name="show all"))
    assert lines(page, "settings")["HyperParameters.epochs"] == ["3", "= 3", "= 3"]
    visit(page.get_by_role("link", name="runs as rows"))
    expect(page.locator("table.matrix-settings tbody tr")).to_have_count(3)
    visit(page.get_by_role("link", name="take run 1 away"))
    chosen = parse_qs(urlsplit(page.url).query)
    assert chosen["run"] == runs[1:] and chosen["base"] == runs[1:2] and chosen["as"] == ["rows"]
    assert faults(page) == []


def test_data_that_was_overwritten_or_is_gone_is_no_evidence(client, cloud: Cloud, runs):
    where = f"/compare?run={runs[0]}&run={runs[2]}"
    kept = {key: cloud.get(key) for key in cloud.keys("data/copy/")}
    cloud.put("data/one/score", "99")
    for key in kept:
        cloud.s3.delete_object(Bucket="bkt", Key=key)
    said = client.get(where).text
    assert "1 of 2 objects were written after the run read them" in said
    assert "nothing lies there any more" in said


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("run=flowers/nosuchrun123", 200),
        ("run=flowers/nosuchrun123&run=nowhere/x", 200),
        ("run=flowers", 400),
        ("&".join(f"run=a/{number}" for number in range(51)), 400),
    ],
)
def test_an_address_that_names_no_runs_says_so(client, query: str, status: int):
    assert client.get(f"/compare?{query}").status_code == status


def test_a_run_is_followed_beside_others(
    page, console: str, cloud: Cloud, runs: list[str], tmp_path: Path
):
    cloud.create("going", [process_step("Slow", wait_for(tmp_path / "end"))])
    going = f"going/{cloud.start('going').rpartition('/')[2]}"
    page.goto(address(console, runs[0], going))
    page.wait_for_selector("td.Executing")
    (tmp_path / "end").touch()
    page.wait_for_selector("table.sides td.Executing", state="detached")
    groups = page.locator("table.matrix-settings th.group")
    shows(lambda: groups.all_inner_texts()[-3:], ["steps.Slow", "steps.Train", "steps.Evaluate"])


def test_fifty_runs_stand_side_by_side(page, console: str, cloud: Cloud):
    step = process_step("Step", "true", CacheConfig={"Enabled": True})
    cloud.create("many", [step], Parameters=[{"Name": "seed", "Type": "String"}])
    cloud.run("many", {"seed": "first"})
    arns = [cloud.start("many", {"seed": f"s{number}"}) for number in range(50)]  # all are cached
    for arn in arns:
        cloud.ended(arn)
    page.goto(address(console, *(f"many/{arn.rpartition('/')[2]}" for arn in arns)))
    expect(page.locator("table.matrix-settings tbody tr")).to_have_count(50)
    until(lambda: page.locator("table.matrix-settings tbody td.other").count() >= 49)
    assert faults(page) == []
