"""What a check found, on the page of its step."""

import html
import json

from tests.trainyard.emulator.harness import Cloud
from tests.trainyard.emulator.steps.test_quality_check import step
from trainyard.console.account import Account
from trainyard.console.step.violations import MOST, violations

HOSTILE = "<script>alert(1)</script>\u202e"


def test_a_check_that_succeeds_in_spite_of_violations_says_which(cloud: Cloud, client):
    cloud.put("data/data.csv", f"{HOSTILE}\n1\n2\n")
    feature = {"name": "size", "inferred_type": "Integral", "completeness": 1.0}
    baseline = {
        f"SuppliedBaseline{part}": cloud.put(f"{part}.json", json.dumps(text))
        for part, text in {
            "Statistics": {"version": 0.0, "features": []},
            "Constraints": {"version": 0.0, "features": [feature]},
        }.items()
    }
    cloud.create("checked", [step("Check", "data/data.csv", FailOnViolation=False, **baseline)])
    ended, _ = cloud.run("checked")
    assert ended["PipelineExecutionStatus"] == "Succeeded"
    run = ended["PipelineExecutionArn"].rpartition("/")[2]
    page = client.get(f"/runs/checked/{run}/Check").text
    assert "Violations: 2" in page and "FailOnViolation is off" in page
    assert "missing_column_check" in page and "extra_column_check" in page
    assert "it found violations" in client.get(f"/runs/checked/{run}").text
    assert HOSTILE not in page and "<script>alert" not in page
    assert html.escape(HOSTILE[:-1]) in page


def test_what_is_no_report_or_is_gone_is_said(cloud: Cloud):
    def found(metadata: dict, status: str = "Failed"):
        return violations(Account(), metadata, status, 0)

    def report(body: str):
        return found({"ClarifyCheck": {"ViolationReport": cloud.put("report.json", body)}})

    many = report(json.dumps({"violations": [{"facet": "a"}] * (MOST + 1)}))
    assert (many.count, len(many.rows), list(many.columns)) == (MOST + 1, MOST, ["facet"])
    assert "first 200" in many.note
    for body in ("[]", "{", '{"violations": [1]}', '{"violations": {"a": 1}}'):
        assert "none of Model Monitor's form" in report(body).note
    assert "too long" in report(f'{{"violations": [], "x": "{"x" * 2**20}"}}').note
    gone = {"QualityCheck": {"ViolationReport": "s3://bkt/gone.json"}}
    assert "gone" in found(gone).note
    assert found({"QualityCheck": {}}) is None and found({"TrainingJob": {}}, "Succeeded") is None
    assert "keeps to its baseline" in found({"QualityCheck": {}}, "Succeeded").note
    assert "SkipCheck" in found({"QualityCheck": {"SkipCheck": True}}, "Succeeded").note
