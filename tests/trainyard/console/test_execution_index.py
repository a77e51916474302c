"""The index follows an account: starts, ends and deletions."""

import pytest

from tests.trainyard.emulator.harness import Cloud, Gate, fail_step, process_step, until
from trainyard.console.account_cache import Account
from trainyard.console.execution_index import Index, Run, recorded

PARAMETERS = [{"Name": "Rate", "Type": "Float", "DefaultValue": 0.1}]


@pytest.fixture(scope="module")
def account(cloud: Cloud) -> Account:
    cloud.create("old", [fail_step("Stop", "no")], Parameters=PARAMETERS)
    for rate in ("0.1", "0.2", "0.3"):
        cloud.ended(cloud.start("old", {"Rate": rate}))
    return Account()


def read(index: Index) -> dict[str, Run]:
    """Return ARN → run, when all has been read."""
    index.look()
    until(lambda: index.is_complete)
    index.look()
    return dict(index.runs())


def test_what_there_is_is_read_with_parameters_and_reasons(account: Account):
    index = Index(account)
    found = read(index)
    assert sorted(run.parameter("Rate") for run in found.values()) == ["0.1", "0.2", "0.3"]
    assert {run.status for run in found.values()} == {"Failed"}
    assert all(run.reason for run in found.values())
    assert (index.pipelines(), index.total) == (["old"], 3)


def test_the_next_look_that_asks_sees_a_start_and_an_end(cloud: Cloud, account: Account):
    assert account.seconds < 1, "looks ask the emulator more often than once in a second"
    index = Index(account)
    read(index)
    gate = Gate(cloud)
    cloud.create("new", [process_step("Work", gate.wait)])
    arn = cloud.start("new")
    until(lambda: (index.look(), arn in dict(index.runs()))[1])
    version = index.version
    gate.open()
    cloud.ended(arn)
    account.forget()
    index.look()
    assert dict(index.runs())[arn].status == "Succeeded"
    assert index.version > version
    version = index.version
    account.forget()
    index.look()
    assert index.version == version


def test_where_search_lags_the_lists_are_asked(cloud: Cloud):
    """On AWS, Search follows a change with a delay."""
    account = Account()
    index = Index(account)
    read(index)
    index._search = lambda by, size: iter([[]])  # type: ignore[method-assign]
    cloud.create("unseen", [fail_step("Stop", "no")], Parameters=PARAMETERS)
    arn = cloud.start("unseen", {"Rate": "0.7"})
    account.forget()
    index.look()
    assert dict(index.runs())[arn].parameter("Rate") == "0.7"
    cloud.ended(arn)
    account.forget()
    index.look()
    assert dict(index.runs())[arn].status == "Failed"


def test_runs_of_a_pipeline_that_was_deleted_are_forgotten(cloud: Cloud):
    account = Account()
    index = Index(account)
    cloud.create("gone", [fail_step("Stop", "no")])
    arn = cloud.start("gone")
    cloud.ended(arn)
    assert arn in read(index)
    cloud.sm.delete_pipeline(PipelineName="gone", ClientRequestToken="t" * 32)
    account.forget()
    index.look()
    assert arn not in dict(index.runs())


def test_where_reading_goes_no_further_it_says_so(cloud: Cloud):
    index = Index(Account())
    record = {"PipelineExecutionArn": "arn:aws:x:pipeline/p/execution/abc"}
    broken = {**record, "PipelineParameters": [{}]}  # as no answer of AWS's is
    index._search = lambda by, size: iter([[record], [broken]])  # type: ignore[method-assign]
    index._look_at_runs()
    until(lambda: index.trouble)
    assert (index.is_complete, index.count) == (False, 1)


def test_an_answer_without_its_optional_members_is_a_run():
    run = recorded("p", {"PipelineExecutionArn": "arn:aws:x:pipeline/p/execution/abc"})
    assert (run.key, run.name, run.status, run.names) == ("p/abc", "abc", "Unknown", ())
