"""The page of a log: its growing end, linked lines."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import faults
from tests.trainyard.emulator.harness import Cloud, process_step, until

pytestmark = pytest.mark.long

GROUP = "/aws/sagemaker/ProcessingJobs"
HOSTILE = "<img src=x onerror=alert(1)> \x1b[31mred\x1b[0m \u202e"


@pytest.fixture(scope="module")
def run(cloud: Cloud) -> tuple[str, str]:
    """Id of a run that continues until the module ends, and the name of its step's job."""
    cloud.create("logged", [process_step("Slow", "echo begun; sleep 300")])
    arn = cloud.start("logged")
    made = until(lambda: cloud.steps(arn).get("Slow", {}).get("Metadata", {}).get("ProcessingJob"))
    return arn.rpartition("/")[2], made["Arn"].rpartition("/")[2]


@pytest.fixture(scope="module")
def written_log_address(cloud: Cloud, run) -> str:
    """Address of a log of 3,000 lines that no job wrote, of the same step's job."""
    execution, job = run
    lines = [f"step={i} loss={1 / (i + 1):.4f}" for i in range(3_000)]
    lines[100] = f"ValueError: {HOSTILE}"
    lines[300] = "".join(f"\r{i}%|{'#' * i}" for i in range(101))
    lines[400] = "UserWarning: slow"
    lines[500] = "[12]#011train-error:0.1#011validation_error=0.2 and error: 3e-2"
    store = cloud.endpoint.app.logs
    store.append(GROUP, f"{job}/algo-6-1700000000", [*lines[90:110], "x" * 10_000_000, lines[300]])
    store.append(GROUP, f"{job}/algo-7-1700000000", lines[:1500])
    time.sleep(0.01)
    store.append(GROUP, f"{job}/algo-7-1700000000", lines[1500:])
    return f"/runs/logged/{execution}/Slow/log?host=algo-7"


def text(html: str) -> list[str]:
    return re.findall(r'<span class="said">(.*?)(?: <a|</span>)', html, re.DOTALL)


def test_it_opens_at_its_end_and_each_end_leads_to_the_other(client, written_log_address: str):
    html = client.get(written_log_address).text
    assert text(html)[-1] == "step=2999 loss=0.0003" and len(text(html)) == 500
    seen = text(html)
    while older := re.search(r'href="([^"]+before=[^"]+)"', html):
        html = client.get(older[1].replace("&amp;", "&")).text
        seen = text(html) + seen
    assert len(seen) == 3_000 and seen[0] == "step=0 loss=1.0000"
    html = client.get(f"{written_log_address}&from=0").text
    forth = text(html)
    while newer := re.search(r'href="([^"]+after=[^"]+)"', html):
        html = client.get(newer[1].replace("&amp;", "&")).text
        forth += text(html)
    assert forth == seen


def test_what_a_log_says_is_text_and_of_one_piece(client, written_log_address: str):
    html = client.get(written_log_address.replace("algo-7", "algo-6")).text
    assert "<img" not in html and "\x1b" not in html and "\u202e" not in html
    assert "&lt;img src=x onerror=alert(1)&gt; red" in html
    assert len(html) < 40_000
    assert f"100%|{'#' * 100}" in text(html) and "99%|" not in html
    link = re.search(r'href="([^"]+)">whole line, 10,000,000 characters', html)
    whole = client.get(link[1].replace("&amp;", "&"))
    assert whole.text == "x" * 10_000_000 and whole.mimetype == "text/plain"


def test_the_link_of_a_line_stays_good_while_the_log_grows(
    client, cloud: Cloud, run, written_log_address: str
):
    html = client.get(written_log_address).text
    line = html[: html.index("step=2750 loss=0.0004")].rpartition('<div class="l')[2]
    link = re.search(r'href="([^"]+line=([^"#]+)#[^"]+)"', line)
    cloud.endpoint.app.logs.append(GROUP, f"{run[1]}/algo-7-1700000000", ["more"] * 700)
    html = client.get(link[1].replace("&amp;", "&").partition("#")[0]).text
    assert f'class="l marked" id="{link[2]}"' in html
    at = text(html).index("step=2750 loss=0.0004")
    assert text(html)[at - 3 : at + 3] == [f"step={i} loss=0.0004" for i in range(2747, 2753)]


def test_a_page_shows_what_came_since_it_was_last_looked_at(client, cloud: Cloud, run):
    """The step ended long ago, so its page is not followed."""
    stream = f"{run[1]}/algo-9-1700000000"
    cloud.endpoint.app.logs.append(GROUP, stream, ["one"])
    address = f"/runs/logged/{run[0]}/Slow/log?host=algo-9"
    assert text(client.get(address).text) == ["one"]
    cloud.endpoint.app.logs.append(GROUP, stream, ["two"])
    until(lambda: text(client.get(address).text) == ["one", "two"])


@pytest.mark.parametrize(
    "wrong", ["host=algo-99", "line=abc", "line=123-01234567", "host=algo-7&before=1-xyz", "job=no"]
)
def test_what_is_not_there_is_said(client, run, written_log_address: str, wrong: str):
    answer = client.get(f"/runs/logged/{run[0]}/Slow/log?{wrong}")
    assert answer.status_code == 502 and "Not available" in answer.text


def test_a_person_follows_a_log_and_finds_a_line(page, cloud: Cloud, console: str, run):
    base, store = console.partition("/?")[0], cloud.endpoint.app.logs
    stream = f"{run[1]}/algo-8-1700000000"
    store.append(GROUP, stream, [f"line {i}" for i in range(100)])
    page.goto(f"{base}/runs/logged/{run[0]}/Slow/log?host=algo-8")
    box = page.locator(".log.whole")
    for i in range(100, 103):
        store.append(GROUP, stream, [f"line {i}"])
        page.locator(".said", has_text=f"line {i}").wait_for()
    expect(page.locator(".said")).to_have_count(103)
    expect(page.locator(".said").last).to_be_in_viewport()
    assert box.evaluate("e => e.scrollTop") == 0
    box.evaluate("e => { e.scrollTop = -500 }")
    at = page.locator(".said").nth(70).bounding_box()["y"]
    store.append(GROUP, stream, ["line 103", "line 104"])
    page.locator(".said", has_text="line 104").wait_for(state="attached")
    now = page.locator(".said").nth(70).bounding_box()["y"]
    assert abs(now - at) < 5, "who reads further up stays there"
    assert faults(page) == []
    with page.context.expect_page() as opened:
        page.locator(".l > a").nth(70).click(modifiers=["Control"])
    tab = opened.value
    expect(tab.locator(".l.marked")).to_contain_text("line 70")
    expect(tab.locator(".l.marked")).to_be_in_viewport()
    assert faults(tab) == []
