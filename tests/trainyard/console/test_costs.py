"""What a run has cost: of its jobs, of nothing that was not run, and said where it is not all."""

import pytest

from tests.trainyard.emulator.harness import Cloud, condition_step, process_step, until
from trainyard.console.account import Account
from trainyard.console.costs import Cost, Costs
from trainyard.console.run_record import Run, recorded
from trainyard.plan.prices import HOURS_A_MONTH, load

CACHED = {"CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"}}


@pytest.fixture(scope="module")
def account(cloud: Cloud) -> Account:
    cloud.create("priced", [process_step("Work", "true", **CACHED)])
    cloud.create("free", [condition_step("Look", [], [], [])])
    return Account()


def read(account: Account, arn: str) -> Cost:
    costs, run = Costs(account), found(account, arn)
    costs.want(arn, run)
    return until(lambda: costs.known(arn))


def found(account: Account, arn: str) -> Run:
    described = account.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
    return recorded(arn.split("/")[1], described)


def test_a_run_costs_what_its_jobs_machines_do_and_a_cached_one_nothing(
    cloud: Cloud, account: Account
):
    first, second = cloud.start("priced"), ""
    cloud.ended(first)
    second = cloud.start("priced")
    cloud.ended(second)
    job = cloud.steps(first)["Work"]["Metadata"]["ProcessingJob"]["Arn"].rpartition("/")[2]
    described = cloud.sm.describe_processing_job(ProcessingJobName=job)
    lasted = described["ProcessingEndTime"] - described["ProcessingStartTime"]
    prices = load("us-east-1")
    machine, disk = prices.hourly("processing", "ml.m5.large"), prices.storage("processing")
    assert machine is not None and disk is not None
    hourly = machine.usd + disk.usd * 1 / HOURS_A_MONTH  # of 1 GB
    cost = read(account, first)
    assert cost.usd == pytest.approx(hourly * lasted.total_seconds() / 3600)
    assert cost.usd and cost.is_whole
    assert read(account, second).usd == 0


def test_without_jobs_it_costs_nothing_and_what_cannot_be_read_has_no_cost(
    cloud: Cloud, account: Account
):
    arn = cloud.start("free")
    cloud.ended(arn)
    assert (read(account, arn).usd, read(account, arn).is_whole) == (0, True)
    costs = Costs(account)
    costs.want(f"{arn}x", found(account, arn))
    assert until(lambda: costs.known(f"{arn}x")).usd is None


def test_what_is_known_of_an_ended_run_is_not_read_again(cloud: Cloud, account: Account):
    arn = cloud.start("free")
    cloud.ended(arn)
    costs, run = Costs(account), found(account, arn)
    costs.want(arn, run)
    until(lambda: costs.known(arn))
    version = costs.version
    costs.want(arn, run)
    assert costs._reading is None or not costs._wanted
    assert costs.version == version
