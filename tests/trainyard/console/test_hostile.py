"""Harmful names, logs, metrics, keys and descriptions: they are text on every page."""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from werkzeug.exceptions import HTTPException

from tests.trainyard.emulator.harness import Cloud, process_step, train_step
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create_console_app, serve_console

MARKUP = (
    """<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>"'><svg onload=pwned=1>"""
)
TEXT = (
    f"{MARKUP} {{{{917*911}}}} \x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u2066 \u200b "
    "javascript:pwned=1"
)
KEY = "<img src=x onerror=pwned=1>&\"'?#%41 \u202e.json"
LOG = f"""
import json, os, sys
from pathlib import Path
hostile = json.loads({json.dumps(json.dumps(TEXT))!s})
print(hostile, flush=True)
sys.stdout.buffer.write(b"\\xed\\xa0\\x80 \\x00 \\xff\\n")
for step, loss in enumerate(("0.5", "nan", "inf", "-inf", "1e999")):
    print(f"step={{step}} loss={{loss}} {{hostile}}", flush=True)
print("<b>" + "A" * 10_000_000, flush=True)
Path("/opt/ml/output/failure").write_text(hostile)
raise ValueError(hostile)
"""
NO_PAGES = {
    "static",
    "home",
    "log.send_new_lines",
    "log.send_whole_log",
    "charts.send_library_file",
    "charts.send_curve_points",
}
"""Endpoints that are not HTML pages."""

MOST = 2
"""Most addresses of one kind of page that are opened."""


LINKS = "all => all.map(a => new URL(a.getAttribute('href'), location).href)"


def train(name: str) -> dict:
    definitions = [{"Name": f"loss{MARKUP}", "Regex": "loss=(\\S+)"}]
    step = train_step(name, f"cat > t.py <<'PY'\n{LOG}\nPY\npython t.py", DisplayName=TEXT[:200])
    step["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = definitions
    step["Arguments"]["HyperParameters"] = {f"a{MARKUP}": {"Get": "Parameters.Given"}}
    step["Arguments"]["Environment"] = {"SHOWN": TEXT.replace("\x1b", "").replace("\x07", "")}
    return step


@pytest.fixture(scope="module")
def hostile(cloud: Cloud) -> str:
    """Id of a failed run full of harmful texts."""
    write = f"open('/opt/ml/processing/out/' + {ascii(KEY)}, 'w').write('x')"
    put = f"python - <<'PY'\n{write}\nPY"
    steps = [
        process_step("Write", put, outputs={"out": "s3://bkt/out"}, Description=TEXT),
        train("Train"),
    ]
    given = [{"Name": "Given", "Type": "String", "DefaultValue": TEXT}]
    cloud.put(f"out/{KEY}", json.dumps({MARKUP: [TEXT, float("nan")]}))
    cloud.create("hostile", steps, Parameters=given)
    cloud.sm.add_tags(ResourceArn=_arn(cloud), Tags=[{"Key": "team", "Value": "a team"}])
    cloud.sm.create_model_package_group(
        ModelPackageGroupName="hostile", ModelPackageGroupDescription=TEXT
    )
    container = {"Image": "i", "ModelDataUrl": f"s3://bkt/out/{KEY}"}
    kinds = [f"text/{MARKUP}"]
    types = {"SupportedContentTypes": kinds, "SupportedResponseMIMETypes": kinds}
    cloud.sm.create_model_package(
        ModelPackageGroupName="hostile",
        ModelPackageDescription=TEXT,
        InferenceSpecification={"Containers": [container], **types},
        CustomerMetadataProperties={"why": TEXT[:200]},
    )
    arn = cloud.start("hostile", {"Given": TEXT}, PipelineExecutionDescription=TEXT)
    assert cloud.wait_for_execution(arn)["PipelineExecutionStatus"] == "Failed"
    assert cloud.steps(arn)["Write"]["StepStatus"] == "Succeeded"
    assert MARKUP in cloud.steps(arn)["Train"]["FailureReason"]
    return arn.rpartition("/")[2]


def _arn(cloud: Cloud) -> str:
    return cloud.sm.describe_pipeline(PipelineName="hostile")["PipelineArn"]


@pytest.fixture(scope="module")
def console(cloud: Cloud) -> Iterator[str]:
    """A console whose pages are complete at once: parts that come later would not be checked."""
    with serve_console(Account(may_write=True, patient=True), "key") as address:
        yield address


@pytest.mark.sweep
def test_every_page_shows_it_as_text(page, console: str, hostile: str):
    """Follow every link, up to ``MOST`` of each kind of page; new pages are found this way."""
    house = console.partition("/?")[0]
    rules = create_console_app(Account(), "key").url_map
    run = f"hostile/{hostile}"
    waiting = [
        "/runs",
        f"/runs/{run}",
        "/models",
        f"/compare?run={run}&run={run}",
        "/models/hostile",
    ]
    opened: dict[str, int] = {}
    seen: set[str] = set()
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    while waiting:
        address = waiting.pop(0)
        kind = _kind(rules, address)
        if address in seen or kind in NO_PAGES or opened.get(kind, 0) >= MOST:
            continue
        seen.add(address)
        opened[kind] = opened.get(kind, 0) + 1
        page.goto(house + address, wait_until="load")
        assert _harm(page) == [], address
        links = page.eval_on_selector_all("a[href]", LINKS)
        assert [link for link in links if not link.startswith((house, "https://"))] == [], address
        waiting += [link.removeprefix(house) for link in links if link.startswith(house)]
    pages = {rule.endpoint for rule in rules.iter_rules() if "GET" in (rule.methods or ())}
    assert pages - NO_PAGES - opened.keys() == set()


def _kind(rules, address: str) -> str:
    try:
        return rules.bind("localhost").match(urlsplit(address).path)[0]
    except HTTPException:
        pytest.fail(f"a link leads nowhere: {address}")


def _harm(page) -> list[str]:
    """Return harmful texts that took effect, or are where they can."""
    return page.evaluate(
        r"""() => {
            const found = [];
            if (window.pwned !== undefined) found.push("it ran");
            const made = document.querySelectorAll("[onerror],[onload],main script,img[src='x']");
            for (const one of made) found.push(one.outerHTML.slice(0, 200));
            const shown = document.documentElement.cloneNode(true);  // but for what forms send back
            for (const field of shown.querySelectorAll("input,textarea,option")) field.remove();
            const html = shown.innerHTML;
            for (const [name, at] of [["escape", /\x1b/], ["bidi", /[\u202a-\u202e\u2066-\u2069]/],
                                      ["null", /\x00/], ["template", /835387/],
                                      ["escaped twice", /&amp;(?:lt|gt|#3[49]);/]]) {
                const hit = at.exec(html);
                const from = Math.max(0, (hit || {}).index - 90);
                if (hit) found.push(name + ": " + html.slice(from, hit.index + 20));
            }
            return found;
        }"""
    )
