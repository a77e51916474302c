"""Dashboards and alarms: generated from one list, and valid for Grafana and CloudFormation."""

import json
import subprocess
import sys

from trainyard import dashboards
from trainyard.common.measures import ALL, OF_SERVICE, OF_TRAINING


def test_every_expression_of_grafanas_names_series_of_the_list_and_all_are_shown():
    shown = dashboards.grafana_dashboard()
    series = {name for measure in OF_SERVICE for name in measure.series}
    named = [dashboards.find_series(expression) for expression in dashboards.expressions(shown)]
    assert all(named) and set().union(*named) == series
    ids = [panel["id"] for panel in shown["panels"]]
    assert len({*ids}) == len(ids)


def test_no_two_panels_lie_on_each_other():
    taken = set()
    for panel in dashboards.grafana_dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells


def test_every_metric_of_cloudwatchs_is_of_the_list():
    known = {(source.namespace, source.name) for measure in ALL for source in measure.sources}
    named = set(dashboards.cloudwatch_metrics(dashboards.cloudwatch_template()))
    assert named <= known
    trained = {(source.namespace, source.name) for m in OF_TRAINING for source in m.sources}
    assert trained <= named


def test_cfn_lint_has_nothing_to_say(tmp_path):
    path = tmp_path / "dashboard.json"
    path.write_text(json.dumps(dashboards.cloudwatch_template()))
    lint = "import sys; from cfnlint.runner import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", lint, "-r", "us-east-1", "-t", str(path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
