"""Dashboards and alarms: generated from one list, and valid for Grafana and CloudFormation."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product

from trainyard import dashboards
from trainyard.common.measures import ALL, OF_SERVICE, OF_TRAINING


def test_every_expression_of_grafanas_names_series_of_the_list_and_all_are_shown():
    shown = dashboards.build_grafana_dashboard()
    series = {name for measure in OF_SERVICE for name in measure.series}
    targets = [target for panel in shown["panels"] for target in panel["targets"]]
    named = [set(re.findall(r"trainyard_\w+", target["expr"])) for target in targets]
    assert all(named) and set().union(*named) == series
    ids = [panel["id"] for panel in shown["panels"]]
    assert len({*ids}) == len(ids)


def test_no_two_panels_lie_on_each_other():
    taken = set()
    for panel in dashboards.build_grafana_dashboard()["panels"]:
        x, y, wide, high = (panel["gridPos"][side] for side in "xywh")
        cells = set(product(range(x, x + wide), range(y, y + high)))
        assert not cells & taken and x + wide <= 24
        taken |= cells


def cloudwatch_metrics(template: dict) -> Iterator[tuple[str, str]]:
    """Iterate over (namespace, name) of every metric of the template's dashboard and alarms."""
    body = json.loads(template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"])
    for widget in body["widgets"]:
        for first, *rest in widget["properties"]["metrics"]:
            if isinstance(first, str):
                yield first, rest[0]
            else:
                found = re.search(r'{([^,]+),.*?MetricName="([^"]+)"', first["expression"])
                yield found[1], found[2]
    for alarm in (r["Properties"] for r in template["Resources"].values() if "Alarm" in r["Type"]):
        yield alarm["Namespace"], alarm["MetricName"]


def test_every_metric_of_cloudwatchs_is_of_the_list():
    known = {(source.namespace, source.name) for measure in ALL for source in measure.sources}
    named = set(cloudwatch_metrics(dashboards.build_cloudwatch_template()))
    assert named <= known
    trained = {(source.namespace, source.name) for m in OF_TRAINING for source in m.sources}
    assert trained <= named


def test_cfn_lint_has_nothing_to_say(tmp_path):
    path = tmp_path / "dashboard.json"
    path.write_text(json.dumps(dashboards.build_cloudwatch_template()))
    lint = "import sys; from cfnlint.runner import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", lint, "-r", "us-east-1", "-t", str(path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
