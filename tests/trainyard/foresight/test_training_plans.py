"""Training plans: what is asked of AWS, how its answers are read, and how a refusal is told."""

from datetime import UTC, datetime

import boto3
import pytest
from botocore.stub import Stubber

from tests.trainyard.foresight.test_advice import OFFERS, SMALL, question
from trainyard.foresight.advice import Candidate, advise
from trainyard.foresight.training_plans import OPERATION, as_json, picture, search

METHOD = "search_training_plan_offerings"
CAPACITY = {
    "InstanceType": "ml.p5.48xlarge",
    "InstanceCount": 4,
    "AvailabilityZone": "us-east-1c",
    "StartTime": datetime(2026, 12, 1, 11, 30, tzinfo=UTC),
}
OFFERING = {
    "TrainingPlanOfferingId": "tpo-b",
    "TargetResources": ["training-job"],
    "DurationHours": 96,
    "DurationMinutes": 30,
    "UpfrontFee": "24000.50",
    "CurrencyCode": "USD",
    "ReservedCapacityOfferings": [CAPACITY],
}
LEAST = {"TrainingPlanOfferingId": "tpo-a", "TargetResources": ["training-job"]}
"""What an answer has at least, by botocore's shapes."""


@pytest.fixture(scope="module")
def first() -> Candidate:
    return advise(question(tokens=1e10, space=SMALL)).ranked[0]


@pytest.fixture
def stubbed():
    sagemaker = boto3.client(
        "sagemaker", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    with Stubber(sagemaker) as stubber:
        yield sagemaker, stubber
        stubber.assert_no_pending_responses()


def test_the_machines_of_the_first_layout_are_asked_for_as_long_as_it_takes(first, stubbed):
    sagemaker, stubber = stubbed
    asked = {
        "InstanceType": first.offer.name,
        "InstanceCount": first.nodes,
        "DurationHours": -int(-first.hours.p90 // 1),
        "TargetResources": ["training-job"],
    }
    stubber.add_response(METHOD, {"TrainingPlanOfferings": [LEAST, OFFERING]}, asked)
    found = search(first, "us-east-1", sagemaker)
    assert [one.offering for one in found.plans] == ["tpo-b", "tpo-a"]
    plan = as_json(found)["plans"][0]
    assert plan["hours"] == 96.5 and plan["starts"] == "2026-12-01T11:30:00+00:00"
    assert plan["zones"] == ("us-east-1c",)
    there = first.offer.usd_hour * first.nodes * 96.5
    assert plan["over_on_demand"] == pytest.approx(24000.50 / there)
    assert as_json(found)["plans"][1]["over_on_demand"] is None
    line, table = picture(found)
    assert "on offer now" in line and table.row_count == 2


def test_nothing_on_offer_is_said(first, stubbed):
    sagemaker, stubber = stubbed
    stubber.add_response(METHOD, {"TrainingPlanOfferings": []})
    [line] = picture(search(first, "us-east-1", sagemaker))
    assert line.endswith("none is on offer")


def test_a_refusal_names_the_permission(first, stubbed):
    sagemaker, stubber = stubbed
    stubber.add_client_error(METHOD, "AccessDeniedException", "not authorized")
    found = search(first, "us-east-1", sagemaker)
    assert not found.plans
    assert f"sagemaker:{OPERATION} on *" in found.why_none and "not authorized" in found.why_none


def test_a_type_without_plans_is_not_asked_for(stubbed):
    asked = question(tokens=1e9, offers=[OFFERS["ml.g6e.48xlarge"]], space=SMALL)
    found = search(advise(asked).ranked[0], "us-east-1", stubbed[0])
    assert "there are none of ml.g6e.48xlarge; there are of ml.p4d.24xlarge" in found.why_none
