"""Generate dashboards and alarms for CloudWatch and Grafana from the list of measures.

The list is in ``trainyard.common.measures``: every measure there appears here. This module only
returns JSON: it sends nothing, and needs no client. For CloudWatch it returns a CloudFormation
template. Namespaces, names and dimensions are AWS's own (developer guide, "Metrics for monitoring
Amazon SageMaker AI with Amazon CloudWatch"); those of a training job are the ones in its
MetricDefinitions. The dashboard's body is JSON in the structure of CloudWatch (API reference,
"Dashboard body structure").
"""

import json
from typing import Any

from trainyard.common.measures import OF_SERVICE, OF_TRAINING, PIPELINES, TRAINING, Measure

# Width and height of a widget, in CloudWatch's grid of 24 columns; number of widgets per row.
WIDTH, HEIGHT, ACROSS = 8, 6, 3
MINUTE, DAY = 60, 86400


def build_cloudwatch_template() -> dict[str, Any]:
    """Return the CloudFormation template of the dashboard and the alarms.

    Its parameters are the pipeline, the SNS topic that the alarms notify, and the maximum duration
    of an execution.
    """
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "CloudWatch dashboard and alarms of one SageMaker pipeline",
        "Parameters": {
            "PipelineName": {"Type": "String", "AllowedPattern": r"[a-zA-Z0-9](-*[a-zA-Z0-9])*"},
            "TopicArn": {"Type": "String", "Description": "SNS topic that the alarms notify"},
            "LongestMilliseconds": {
                "Type": "Number",
                "Default": DAY * 1000,
                "MinValue": 1,
                "Description": "Alarm for executions longer than this; ExecutionDuration's unit",
            },
        },
        "Resources": {"Dashboard": _build_dashboard(), **_build_alarms()},
    }


def _build_dashboard() -> dict[str, Any]:
    pipelines = [m for m in OF_SERVICE if m.sources[0].namespace == PIPELINES]
    widgets = [_build_widget(m, index) for index, m in enumerate([*pipelines, *OF_TRAINING])]
    return {
        "Type": "AWS::CloudWatch::Dashboard",
        "Properties": {
            "DashboardName": {"Fn::Sub": "trainyard-${PipelineName}"},
            "DashboardBody": {"Fn::Sub": json.dumps({"widgets": widgets})},
        },
    }


def _build_widget(measure: Measure, index: int) -> dict[str, Any]:
    """Return CloudWatch's widget for a measure; ``index`` is its number on the dashboard."""
    down, right = divmod(index, ACROSS)
    return {
        "type": "metric",
        "x": right * WIDTH,
        "y": down * HEIGHT,
        "width": WIDTH,
        "height": HEIGHT,
        "properties": {
            "title": measure.says,
            "view": "timeSeries",
            "region": "${AWS::Region}",
            "period": MINUTE,
            "stat": "Average" if measure.kind != "counter" else "Sum",
            "metrics": [
                line
                for source in measure.sources
                for line in _list_widget_metrics(measure, source.name)
            ],
        },
    }


def _list_widget_metrics(measure: Measure, name: str) -> list[list[Any]]:
    """Return the entries of ``metrics`` in a widget: the pipeline's metric, or a search for it."""
    space = measure.sources[0].namespace
    if [*measure.dimensions] == ["PipelineName"]:
        return [[space, name, "PipelineName", "${PipelineName}"]]
    # A graph of all steps or jobs cannot list them by name, so CloudWatch searches for them each
    # time it draws the graph.
    dimensions = [*measure.dimensions] or ["TrainingJobName" if space == TRAINING else ""]
    statistic = "Sum" if measure.kind == "counter" else "Average"
    only = ' PipelineName="${PipelineName}"' if "PipelineName" in measure.dimensions else ""
    schema = ",".join([space, *dimensions])
    search = f"SEARCH('{{{schema}}} MetricName=\"{name}\"{only}', '{statistic}', {MINUTE})"
    return [[{"expression": search, "label": ""}]]


def _build_alarms() -> dict[str, Any]:
    return {
        "ExecutionFailed": _build_alarm(
            "An execution has failed", "ExecutionFailed", "Sum", 5 * MINUTE, 1, 1
        ),
        "ExecutionSlow": _build_alarm(
            "An execution took longer than allowed", "ExecutionDuration", "Maximum", 5 * MINUTE,
            1, {"Ref": "LongestMilliseconds"},
        ),
        "NoneSucceeded": _build_alarm(
            "No execution has succeeded for a week", "ExecutionSucceeded", "Sum", DAY, 7, 1,
            below=True,
        ),
    }  # fmt: skip


def _build_alarm(
    says: str,
    metric: str,
    statistic: str,
    period: int,
    periods: int,
    threshold: Any,
    *,
    below: bool = False,
) -> dict[str, Any]:
    """Return the CloudFormation resource of an alarm on a metric of the pipeline.

    The alarm fires if the metric is at or above ``threshold``, or, with ``below``, under it.
    """
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmDescription": {"Fn::Sub": f"{says}: ${{PipelineName}}"},
            "Namespace": PIPELINES,
            "MetricName": metric,
            "Dimensions": [{"Name": "PipelineName", "Value": {"Ref": "PipelineName"}}],
            "Statistic": statistic,
            "Period": period,
            "EvaluationPeriods": periods,
            "Threshold": threshold,
            "ComparisonOperator": f"{'LessThan' if below else 'GreaterThanOrEqualTo'}Threshold",
            # Missing data are no failure, but they are no success either.
            "TreatMissingData": "breaching" if below else "notBreaching",
            "AlarmActions": [{"Ref": "TopicArn"}],
        },
    }


# The Grafana dashboard for the metrics at /metrics: one panel for each measure.
#
# The JSON is Grafana's dashboard model (grafana.com/docs/grafana/latest/dashboards/
# build-dashboards/view-dashboard-json-model); panels are of type ``timeseries``.

GRAFANA_WIDTH, GRAFANA_HEIGHT, GRAFANA_ACROSS = 8, 8, 3
"""Width and height of a panel, in Grafana's grid of 24 columns; number of panels per row."""

WINDOW = "$__rate_interval"


def build_grafana_dashboard() -> dict[str, Any]:
    """Return the Grafana dashboard as JSON, to be imported or provisioned from a file."""
    return {
        "title": "Trainyard",
        "uid": "trainyard",
        "schemaVersion": 39,
        "tags": ["trainyard"],
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "panels": [_build_panel(measure, index) for index, measure in enumerate(OF_SERVICE)],
    }


def _build_panel(measure: Measure, index: int) -> dict[str, Any]:
    """Return Grafana's panel for a measure; ``index`` is its number on the dashboard."""
    source = {"type": "prometheus", "uid": "${source}"}
    unit = "s" if measure.name.endswith("_seconds") else "short"
    down, right = divmod(index, GRAFANA_ACROSS)
    labels = [*measure.dimensions.values(), *measure.sources[0].labels]
    legend = " ".join(f"{{{{{label}}}}}" for label in labels or ["instance"])
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": measure.says,
        "gridPos": {
            "h": GRAFANA_HEIGHT,
            "w": GRAFANA_WIDTH,
            "x": right * GRAFANA_WIDTH,
            "y": down * GRAFANA_HEIGHT,
        },
        "datasource": source,
        "targets": [
            {"expr": _build_promql(measure), "legendFormat": legend, "refId": "A"}
            | {"datasource": source}
        ],
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
    }


def _build_promql(measure: Measure) -> str:
    """Return the PromQL expression of a measure.

    It is the increase of a counter, the mean of a summary over the window, or the plain series.
    """
    if measure.kind == "counter":
        return f"increase({measure.name}[{WINDOW}])"
    if measure.kind == "summary":
        total, count = (f"increase({name}[{WINDOW}])" for name in measure.series)
        return f"{total} / {count}"
    return measure.name
