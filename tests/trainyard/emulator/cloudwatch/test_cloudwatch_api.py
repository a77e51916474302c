"""CloudWatch through boto3 and the query protocol; alarms that go off."""

import time
from urllib.parse import urlencode

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import cloud, fail_step, train_step, until
from tests.trainyard.emulator.standin import make_client, send

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def aws(tmp_path_factory):
    with cloud(tmp_path_factory.mktemp("state")) as found:
        found.cw = make_client(found.endpoint, "cloudwatch")
        yield found


def alarm(name: str, **more) -> dict:
    return {
        "AlarmName": name, "Namespace": "Mine", "MetricName": "Errors", "Statistic": "Sum",
        "Period": 10, "EvaluationPeriods": 1, "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "notBreaching", **more,
    }  # fmt: skip


def state(aws, name: str) -> str:
    return aws.cw.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]["StateValue"]


def form(aws, **fields: str) -> str:
    """Return the answer to a request in the query protocol, as older clients make it."""
    body = urlencode({"Version": "2010-08-01", **fields}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return send(aws.endpoint, "monitoring", "POST", "/", headers, body)[1]


def test_data_are_read_back_by_period(aws):
    dimensions = [{"Name": "Host", "Value": "a"}]
    now = time.time() // 60 * 60 - 120
    data = [
        {"MetricName": "Load", "Dimensions": dimensions, "Timestamp": now + t, "Value": value}
        for t, value in ((0, 1.0), (1, 3.0), (60, 5.0))
    ]
    several = {"MetricName": "Load", "Dimensions": dimensions, "Timestamp": now + 61,
               "Values": [7.0, 9.0], "Counts": [1.0, 2.0]}  # fmt: skip
    aws.cw.put_metric_data(Namespace="Mine", MetricData=[*data, several])
    asked = {"Namespace": "Mine", "MetricName": "Load", "Dimensions": dimensions}
    found = aws.cw.get_metric_statistics(
        **asked, StartTime=now, EndTime=now + 120, Period=60,
        Statistics=["Sum", "Average", "SampleCount"],
    )["Datapoints"]  # fmt: skip
    shown = [[d["Timestamp"].timestamp(), d["Sum"], d["Average"], d["SampleCount"]] for d in found]
    assert shown == [[now, 4.0, 2.0, 2.0], [now + 60, 30.0, 7.5, 4.0]]
    stat = {"Metric": asked, "Period": 60, "Stat": "p50"}
    [result] = aws.cw.get_metric_data(
        MetricDataQueries=[{"Id": "m", "MetricStat": stat}], StartTime=now, EndTime=now + 120
    )["MetricDataResults"]
    assert (result["Values"], result["StatusCode"]) == ([7.0, 1.0], "Complete")
    assert aws.cw.list_metrics(Namespace="Mine", MetricName="Load")["Metrics"] == [asked]
    with pytest.raises(ClientError, match="metric math and SEARCH are not evaluated"):
        aws.cw.get_metric_data(
            MetricDataQueries=[{"Id": "e", "Expression": "m1*2"}], StartTime=0, EndTime=1
        )
    text = form(aws, Action="ListMetrics", Namespace="Mine", MetricName="Load")
    assert "<MetricName>Load</MetricName>" in text and "<Value>a</Value>" in text


def test_an_alarm_goes_off_and_says_why(aws):
    aws.cw.put_metric_alarm(**alarm("errors"))
    until(lambda: state(aws, "errors") == "OK")
    aws.cw.put_metric_data(
        Namespace="Mine", MetricData=[{"MetricName": "Errors", "Value": 2.0, "Unit": "Count"}]
    )
    until(lambda: state(aws, "errors") == "ALARM")
    [found] = aws.cw.describe_alarms(AlarmNames=["errors"])["MetricAlarms"]
    assert "[2] was greater than or equal to the threshold (1.0)" in found["StateReason"]
    aws.cw.delete_alarms(AlarmNames=["errors"])
    assert "<MetricAlarms/>" in form(aws, Action="DescribeAlarms")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"AlarmActions": ["arn:aws:sns:us-east-1:1:t"]}, "AlarmActions: only the state"),
        ({"Period": 45}, "Period 45"),
        ({"DatapointsToAlarm": 2}, "EvaluationPeriods 1"),
        ({"Statistic": "SampleCount", "ExtendedStatistic": "p9"}, "Statistic or ExtendedStatistic"),
        ({"ComparisonOperator": "GreaterThanUpperThreshold"}, "ComparisonOperator"),
        ({"Metrics": [{"Id": "e", "Expression": "m1"}]}, "metric math"),
    ],
)
def test_an_alarm_that_is_not_evaluated_is_refused(aws, changes, says):
    with pytest.raises(ClientError, match=says):
        aws.cw.put_metric_alarm(**alarm("refused", **changes))


def test_what_nobody_does_is_refused_in_both_protocols(aws):
    with pytest.raises(ClientError, match="does not implement PutCompositeAlarm"):
        aws.cw.put_composite_alarm(AlarmName="x", AlarmRule="TRUE")
    assert "does not implement PutAnomalyDetector" in form(aws, Action="PutAnomalyDetector")
    with pytest.raises(ClientError, match="does not implement PutDashboard"):
        aws.cw.put_dashboard(DashboardName="d", DashboardBody="{}")


def test_alarms_and_data_survive_the_emulator(tmp_path):
    with cloud(tmp_path) as first:
        client = make_client(first.endpoint, "cloudwatch")
        client.put_metric_alarm(**alarm("kept"))
        client.put_metric_data(Namespace="Mine", MetricData=[{"MetricName": "M", "Value": 1.0}])
    with cloud(tmp_path) as second:
        client = make_client(second.endpoint, "cloudwatch")
        assert client.describe_alarms()["MetricAlarms"][0]["AlarmName"] == "kept"
        assert client.list_metrics()["Metrics"][0]["MetricName"] == "M"
    (tmp_path / "cloudwatch/metrics.sqlite").write_text("no database")
    with cloud(tmp_path) as third:
        assert make_client(third.endpoint, "cloudwatch").list_metrics()["Metrics"] == []
    assert (tmp_path / "cloudwatch/metrics.damaged").exists()


def test_jobs_and_pipelines_are_measured(aws):
    training = train_step("Train", "echo 'loss=0.5'; echo 'loss=0.25'")
    training["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = [
        {"Name": "loss", "Regex": "loss=([0-9.]+)"}
    ]
    aws.create("measured", [training, fail_step("Never", "no") | {"DependsOn": ["Train"]}])
    _, steps = aws.run("measured")
    job = steps["Train"]["Metadata"]["TrainingJob"]["Arn"].rpartition("/")[2]

    def total(namespace: str, name: str, statistic: str = "Sum", **dimensions: str) -> float:
        found = aws.cw.get_metric_statistics(
            Namespace=namespace, MetricName=name, Period=3600, Statistics=[statistic],
            Dimensions=[{"Name": k, "Value": v} for k, v in dimensions.items()],
            StartTime=time.time() - 3600, EndTime=time.time() + 60,
        )["Datapoints"]  # fmt: skip
        return sum(point[statistic] for point in found)

    assert total("/aws/sagemaker/TrainingJobs", "loss", TrainingJobName=job) == 0.75
    space = "AWS/Sagemaker/ModelBuildingPipeline"
    assert total(space, "ExecutionStarted", PipelineName="measured") == 1
    assert total(space, "ExecutionFailed", PipelineName="measured") == 1
    assert total(space, "ExecutionDuration", PipelineName="measured") > 0
    assert total(space, "StepSucceeded", PipelineName="measured", StepName="Train") == 1
    assert total(space, "StepFailed", PipelineName="measured", StepName="Never") == 1
