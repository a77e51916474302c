"""Actions: shown first, carried out once, and refused if the state has changed."""

import html
import re
from typing import Any, NoReturn

import pytest

from tests.trainyard.console.test_models import register as package
from tests.trainyard.emulator.harness import Cloud, process_step, until
from tests.trainyard.emulator.sagemaker.test_callback_tokens import callback_step
from tests.trainyard.emulator.standin import make_client
from trainyard.common.errors import GateError, ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.actions.action import Call, build_policy_for_denial
from trainyard.console.app_hooks import Application, Owner
from trainyard.console.web_server import create_console_app

pytestmark = pytest.mark.long

PARAMETERS = [
    {"Name": "Steps", "Type": "Integer", "DefaultValue": 3},
    {"Name": "Rate", "Type": "Float", "DefaultValue": 0.5},
    {"Name": "Mode", "Type": "String", "DefaultValue": "fast", "EnumValues": ["fast", "slow"]},
    {"Name": "Who", "Type": "String"},
]
ORIGIN = {"Origin": "http://localhost"}


@pytest.fixture(scope="module")
def pipelines(cloud: Cloud) -> Cloud:
    """A pipeline with parameters, one that waits for an answer, and a group of packages."""
    queue = make_client(cloud.endpoint, "sqs").create_queue(QueueName="asked")["QueueUrl"]
    first = process_step("First", "true")
    cloud.create("typed", [first, process_step("Second", "true", ["First"])], Parameters=PARAMETERS)
    cloud.create("asks", [callback_step("Ask", queue)])
    cloud.sm.create_model_package_group(ModelPackageGroupName="digits")
    return cloud


def client_of(*owners: Owner, may_write: bool = True) -> Any:
    """Return a client of a console with these owners of packages."""
    app = create_console_app(Account(may_write=may_write), "key", Application(owners=owners))
    asking = app.test_client()
    asking.get("/?key=key")
    return asking


def status(cloud: Cloud, arn: str) -> str:
    return cloud.sm.describe_model_package(ModelPackageName=arn)["ModelApprovalStatus"]


def is_asking(cloud: Cloud, arn: str) -> bool:
    step = cloud.steps(arn).get("Ask", {})
    return step.get("StepStatus") == "Executing" and "Callback" in step.get("Metadata", {})


def answer(cloud: Cloud, arn: str) -> None:
    token = cloud.steps(arn)["Ask"]["Metadata"]["Callback"]["CallbackToken"]
    cloud.sm.send_pipeline_execution_step_failure(CallbackToken=token, FailureReason="enough")


class Form:
    """The form of an action as the page shows it."""

    def __init__(self, client: Any, action: str, **about: str) -> None:
        self._client, self._address, self._about = client, f"/do/{action}", about
        self.answer = client.get(self._address, query_string=about)
        self._read(self.answer)

    def _read(self, answer: Any) -> None:
        self.text = html.unescape(answer.text)
        found = re.search(r'name="token" value="([^"]+)"', self.text)
        self.token = found[1] if found else ""

    def send(self, **typed: str) -> Any:
        """POST the form, as a browser does; the form on the answered page replaces it."""
        answer = self._client.post(
            self._address,
            query_string=self._about,
            data={"token": self.token, **typed},
            headers=ORIGIN,
        )
        self._before, self.token_before = self.text, self.token
        self._read(answer)
        return answer


def test_an_approval_is_shown_then_done_with_its_reason(pipelines: Cloud, client):
    arn = package(pipelines)
    form = Form(client, "approve", package=arn)
    assert "UpdateModelPackage" in form.text and arn in form.text
    assert "arn:aws:iam::" in form.text or "arn:aws:sts::" in form.text  # who does it
    assert form.send(comment="better on 7 of 8").status_code == 303
    found = pipelines.sm.describe_model_package(ModelPackageName=arn)
    assert found["ModelApprovalStatus"] == "Approved"
    assert found["ApprovalDescription"] == "better on 7 of 8"


def test_a_state_that_has_moved_is_refused_and_named(pipelines: Cloud, client):
    arn = package(pipelines)
    form = Form(client, "approve", package=arn)
    pipelines.sm.update_model_package(
        ModelPackageArn=arn, ModelApprovalStatus="Rejected", ApprovalDescription="it leaks"
    )
    answer = form.send(comment="")
    assert answer.status_code == 409
    assert "Rejected" in form.text and "it leaks" in form.text
    assert status(pipelines, arn) == "Rejected"


def test_rejecting_the_champion_says_who_becomes_it(pipelines: Cloud, client):
    before, now = package(pipelines), package(pipelines)
    for arn in (before, now):
        pipelines.sm.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
    form = Form(client, "reject", package=now)
    assert f"version {before.rpartition('/')[2]} becomes it again" in form.text
    assert form.send(comment="").status_code == 422  # a reason is required
    assert form.send(comment="wrong on Sundays").status_code == 303
    assert (status(pipelines, before), status(pipelines, now)) == ("Approved", "Rejected")


def test_a_package_with_a_command_of_its_own_is_not_approved_behind_its_back(
    pipelines: Cloud, client
):
    arn = package(pipelines, CustomerMetadataProperties={"approve_with": "make approve"})
    form = Form(client, "approve", package=arn)
    assert f"Run: make approve {arn}" in form.text
    assert form.send(comment="").status_code == 409
    assert status(pipelines, arn) == "PendingManualApproval"


DENIED = (
    "this was not done: UpdateModelPackage was refused: AccessDeniedException: User: "
    "arn:aws:iam::1:user/x is not authorized to perform: sagemaker:UpdateModelPackage on resource: "
    "arn:aws:sagemaker:eu-x-1:1:model-package/g/1 because no identity-based policy allows it"
)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (GateError("the champion has moved"), "the champion has moved"),
        (ServiceError(DENIED), '"Action": [\n        "sagemaker:UpdateModelPackage"'),
    ],
    ids=["a rule of its own", "a missing permission, with the statement"],
)
def test_an_application_approves_its_own_by_its_own_rules(
    pipelines: Cloud, error: Exception, shown: str
):
    said: list[str] = []

    def judge(described: Any, typed: Any) -> NoReturn:
        said.append(typed["comment"])
        raise error

    mine = Owner(
        action="approve",
        owns=lambda found: "approve_with" in found.get("CustomerMetadataProperties", {}),
        says=lambda _: ["Every byte is hashed first."],
        do=judge,
    )
    arn = package(pipelines, CustomerMetadataProperties={"approve_with": "make approve"})
    form = Form(client_of(mine), "approve", package=arn)
    assert "Every byte is hashed first." in form.text
    answer = form.send(comment="typed before")
    assert (answer.status_code, said) == (502, ["typed before"])
    assert shown in form.text and "typed before" in form.text
    assert status(pipelines, arn) == "PendingManualApproval"


def test_a_start_keeps_what_was_typed_and_shows_what_follows_from_it(pipelines: Cloud, client):
    form = Form(client, "start", pipeline="typed")
    typed = {"p.Steps": "four", "p.Rate": "0.5", "p.Mode": "slow", "p.Who": "me"}
    assert form.send(**typed).status_code == 422
    assert "'four' is not of type Integer" in form.text and 'value="four"' in form.text
    assert re.findall(r'name="([^"]+)"[^>]* autofocus', form.text) == ["p.Steps"]
    typed["p.Steps"] = "4"
    shown = form.send(**typed)
    assert shown.status_code == 200 and "Nothing was done yet" in form.text
    assert '"Name": "Steps"' in form.text and '"Name": "Rate"' not in form.text  # its default
    started = form.send(**typed)
    form.token = form.token_before
    again = form.send(**typed)  # two clicks start one run
    assert started.status_code == again.status_code == 303
    assert started.headers["Location"] == again.headers["Location"]
    execution = started.headers["Location"].rpartition("/")[2]
    pipeline = pipelines.sm.describe_pipeline(PipelineName="typed")["PipelineArn"]
    arn = f"{pipeline}/execution/{execution}"
    given = pipelines.sm.list_pipeline_parameters_for_execution(PipelineExecutionArn=arn)
    values = {one["Name"]: one["Value"] for one in given["PipelineParameters"]}
    assert values == {"Steps": "4", "Rate": "0.5", "Mode": "slow", "Who": "me"}
    pipelines.wait_for_execution(arn)


def test_a_step_that_was_not_chosen_is_told_from_one_that_has_not_begun(pipelines: Cloud, client):
    done = pipelines.start("typed", {"Who": "me"})
    pipelines.wait_for_execution(done)
    chosen = {"SourcePipelineExecutionArn": done, "SelectedSteps": [{"StepName": "First"}]}
    arn = pipelines.start("typed", {"Who": "me"}, SelectiveExecutionConfig=chosen)
    assert pipelines.wait_for_execution(arn)["PipelineExecutionStatus"] == "Succeeded"
    run = f"/runs/typed/{arn.rpartition('/')[2]}"
    assert ">not run<" in client.get(f"{run}/Second").text


def test_a_run_is_stopped_then_retried(pipelines: Cloud, client):
    arn = pipelines.start("asks")
    until(lambda: is_asking(pipelines, arn))
    about = {"pipeline": "asks", "execution": arn.rpartition("/")[2]}
    form = Form(client, "stop", **about)
    assert "StopPipelineExecution" in form.text and "waits for an answer" in form.text
    assert form.send().status_code == 303
    answer(pipelines, arn)
    assert pipelines.wait_for_execution(arn)["PipelineExecutionStatus"] == "Stopped"
    assert Form(client, "retry", **about).send().status_code == 303
    until(lambda: is_asking(pipelines, arn))
    answer(pipelines, arn)
    assert pipelines.wait_for_execution(arn)["PipelineExecutionStatus"] == "Failed"


def test_read_only_offers_nothing_and_refuses_everything(pipelines: Cloud):
    arn = package(pipelines)
    client = client_of(may_write=False)
    assert client.get(f"/do/approve?package={arn}").status_code == 403
    assert client.post(f"/do/approve?package={arn}", headers=ORIGIN).status_code == 403
    group, version = arn.split("/")[-2:]
    assert "/do/" not in client.get(f"/models/{group}/{version}").text


@pytest.mark.parametrize("token", ["", "made up", "other"])
def test_a_post_without_its_own_form_is_refused(pipelines: Cloud, client, token: str):
    arn = package(pipelines)
    form = Form(client, "approve", package=arn)
    form.token = Form(client, "reject", package=arn).token if token == "other" else token
    assert form.send(comment="x").status_code == 403
    assert status(pipelines, arn) == "PendingManualApproval"


def test_every_pipeline_can_be_started_from_one_page_and_what_is_not_there_is_said(
    pipelines: Cloud, client
):
    text = client.get("/do").text
    assert 'href="/do/start?pipeline=typed"' in text and 'href="/do/start?pipeline=asks"' in text
    assert 'href="/do"' in client.get("/runs").text
    assert client.get("/do/nothing").status_code == 404
    assert client.get("/do/approve").status_code == 400
    assert client.get("/do/approve?package=nobody").status_code == 502


def test_the_missing_permission_is_a_statement():
    call = Call(operation="UpdateModelPackage", arguments={}, resources=("arn:p",))
    resource = "arn:aws:sagemaker:eu-x-1:1:model-package/g/1"
    for said, of in ((DENIED, resource), ("AccessDeniedException: None", "arn:p")):
        found = build_policy_for_denial(said, [call])
        assert found is not None
        (statement,) = found["Statement"]
        assert statement["Action"] == ["sagemaker:UpdateModelPackage"]
        assert statement["Resource"] == [of]
    assert build_policy_for_denial("ValidationException: no such package", [call]) is None
