"""A registered model: verified, tampered with in every way, approved, deployed and asked."""

import hashlib
import html
import io
import json
import math
import re
import sys
import tarfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from pipelines.approve import (
    approve,
    approve_automatically,
    list_approved,
    reject,
    roll_back_champion,
)
from pipelines.compile.compilation import collect_step_code
from pipelines.compile.package_lock import parse_lock
from pipelines.console import OWNERS
from pipelines.registry import training_checks
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.recompute import require_gate_pass
from pipelines.registry.record_checks import build_gate_arguments
from pipelines.registry.verification import (
    QUICK,
    choose_checks,
    find_first_mismatch,
    run_checks,
    verify,
)
from steps.gate.config import GateConfig
from tests.conftest import CHECKOUT, call_module
from tests.harms import (
    TAMPERINGS,
    begun_elsewhere,
    described_otherwise,
    first_wrong,
    loss_changed,
    made_elsewhere,
    metadata_set,
    object_edited,
    of_other_code,
    renamed_too,
    trained_by_other_code,
)
from tests.infra.lifecycle import expires
from tests.registered import (
    BUCKET,
    GROUP,
    SETTINGS,
    Registered,
    another,
    checkout_in,
    first,
    register,
    reseal_package,
    run_folder,
    unpack_evaluated_files,
)
from tests.tamperings import KINDS, Target, files, keys, names_harmed_place, tamper_target
from trainyard.common.errors import GateError
from trainyard.console.account_cache import Account
from trainyard.console.app_hooks import Application, Owner
from trainyard.console.web_server import create_console_app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    return checkout_in(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def registered_package(emulator, aws_environment, state, checkout) -> Registered:
    return register(emulator, state, checkout)


def test_an_honest_package_verifies_to_the_last_byte_and_to_the_definition(registered_package):
    done = registered_package.python(
        "pipelines.verify", registered_package.arn, "--checkout", ".", "--deep", "--json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert {f["status"] for f in findings} == {"ok"}, done.stdout
    assert findings[-1]["name"] == "definition again"


def test_another_gate_judges_the_recorded_scores_again(registered_package, checkout):
    evidence = Evidence(registered_package.arn)
    for bound, said in ((100.0, None), (0.1, "bits_per_byte")):
        gate = GateConfig.model_validate({**evidence.recipe["gate"], "max_bits_per_byte": bound})
        asked = build_gate_arguments(evidence, gate, gate.thresholds)
        with pytest.raises(GateError, match=said) if said else nullcontext():
            require_gate_pass(evidence, checkout, "not promoted", arguments=asked)


def test_the_record_binds_everything_that_the_issue_names(registered_package):
    record = json.loads(registered_package.read(registered_package.metadata["provenance_uri"]))
    for name in ("commit", "definition_sha256", "artifact_sha256", "packages_sha256",
                 "dataset_fingerprint", "train_fingerprint", "test_fingerprint",
                 "evaluation_sha256", "gate_sha256"):  # fmt: skip
        assert len(record[name]) >= 40, name
    assert record["changes_sha256"] is None
    assert (record["seed"], record["checkpoint_step"], record["verdict"]) == (0, 4, "pass")
    assert record["recipe"]["overrides"] == SETTINGS
    assert all(record["lock"].values())
    assert set(record["code"]) == {"Shard", "Train", "Evaluate", "Gate"}
    assert set(record["images"]) == {"Shard", "Train", "Evaluate", "Gate", "Register"}
    assert all(image["digest"] is None for image in record["images"].values())  # tags, offline
    with tarfile.open(
        fileobj=io.BytesIO(registered_package.read(registered_package.model_uri))
    ) as tar:
        packages = tar.extractfile("packages.txt").read()
    assert hashlib.sha256(packages).hexdigest() == record["packages_sha256"]
    lines = (line.partition("==") for line in packages.decode().splitlines())
    there = {canonicalize_name(name): version for name, _, version in lines}
    locked = parse_lock(
        collect_step_code(CHECKOUT, "train", None)["requirements.txt"].decode(), "train"
    )
    here = [e for e in locked if e.requirement.marker is None or e.requirement.marker.evaluate()]
    assert len(here) > 20 and {e.name: there.get(e.name) for e in here} == {
        e.name: e.version for e in here
    }


def test_no_lifecycle_rule_deletes_what_the_package_or_its_record_names(registered_package):
    """By the rules of infra/storage.yaml. Folders are named with and without their slash."""
    evidence = Evidence(registered_package.arn)
    root = f"trainyard/{GROUP}"
    record = registered_package.read(
        first(registered_package, run_folder(registered_package, "gate"), "record.json")
    )
    said = json.dumps([
        registered_package.package,
        evidence.provenance,
        json.loads(record),
        [evidence.find_job_inputs(step) for step in ("Evaluate", "Gate")],
    ], default=str)  # fmt: skip
    named = set(re.findall(r"s3://[^\\\"\s]+", said))
    assert {
        registered_package.model_uri,
        registered_package.evaluation_uri,
        registered_package.gate_uri,
    } <= named
    assert any("/shard/test" in uri for uri in named) and any("/code/" in uri for uri in named)
    keys = [uri.removeprefix(f"s3://{BUCKET}/") for uri in named]
    assert [
        key for key in keys if expires(f"{key.rstrip('/')}/x", root) or expires(key, root)
    ] == []
    there = registered_package.client("s3").get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    every = {item["Key"] for page in there for item in page["Contents"]}
    deleted = {key for key in every if expires(key, root)}
    assert deleted and all(key.startswith(f"{root}/checkpoints/") for key in deleted)


def tampered_with(registered, target: Target, kind: str) -> str:
    """What is not right of ``verify`` and ``approve`` after this harm; empty if both name it."""
    with tamper_target(registered.client, registered.arn, target, kind):
        checks = choose_checks(None, quick=False, deep=True)
        wrong = find_first_mismatch(run_checks(Evidence(registered.arn), checks))
        found = {"verify": f"{wrong.name}: {wrong.detail}" if wrong else "", "approve": ""}
        try:
            approve(registered.arn, deep=target.bulk, reason=WHY)
        except GateError as why:
            found["approve"] = str(why)
    unnamed = {
        verb: said for verb, said in found.items() if not names_harmed_place(said, target, kind)
    }
    return f"{kind} of {target.where} {target.path}: {unnamed}" if unnamed else ""


@pytest.mark.sweep
@pytest.mark.timeout(7200)
def test_every_tampering_with_what_the_record_covers_is_named(registered_package, request):
    """Some, each in one of four ways; with --hypothesis-profile=thorough, which takes an hour or
    more, all in all four. python -m pytest -s prints how many.
    """
    evidence = Evidence(registered_package.arn)
    found = [*files(evidence), *keys(evidence)]
    many = [t for t in found if "/code/" in t.where or t.where in ("ModelCard", SPECIFICATION)]
    some = ([target for target in found if target not in many] + many[::16])[::3]
    cases = [(target, KINDS[number % len(KINDS)]) for number, target in enumerate(some)]
    if request.config.getoption("--hypothesis-profile") == "thorough":
        cases = [(target, kind) for target in found for kind in KINDS]
    unnamed = [said for case in cases if (said := tampered_with(registered_package, *case))]
    print(f"{len(cases) - len(unnamed)} of {len(cases)} tamperings are named by both verbs")
    assert len(cases) > 20 and unnamed == []


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampering_is_named(name: str, registered_package):
    tampered, expected = TAMPERINGS[name]
    with tampered(registered_package):
        wrong = first_wrong(registered_package)
    assert wrong is not None and wrong.name == expected, wrong


def test_a_package_of_somebody_else_is_a_mismatch_not_a_traceback(registered_package):
    sagemaker = registered_package.client("sagemaker")
    specification = registered_package.package["InferenceSpecification"]
    sagemaker.create_model_package_group(ModelPackageGroupName="others")
    arn = sagemaker.create_model_package(
        ModelPackageGroupName="others", InferenceSpecification=specification
    )["ModelPackageArn"]
    findings = verify(arn)
    assert find_first_mismatch(findings).name == "package"
    assert {f.status for f in findings[1:]} == {"unchecked"}
    # Without --checkout, this one is at another commit: that is told, and is no mismatch.
    known = {finding.name: finding for finding in verify(registered_package.arn)}
    assert known["commit"].status == "unchecked"
    assert find_first_mismatch(known.values()) is None


@pytest.mark.parametrize("text", ["", "[]", '{"code": {"Gate": 3}}', "[" * 100_000])
def test_a_record_of_any_form_is_a_mismatch_not_a_traceback(text: str, registered_package):
    """Its hash is right, so that every check has to look at it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    edited = object_edited(lambda r: r.metadata["provenance_uri"], lambda _: text.encode())
    with edited(registered_package), metadata_set(provenance_sha256=digest)(registered_package):
        findings = verify(registered_package.arn, deep=True)
    assert find_first_mismatch(findings).name == "evaluation"
    assert [finding.status for finding in findings[:4]] == ["ok", "ok", "ok", "mismatch"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [(trained_by_other_code, "from step 1 on the weights were trained by other code, 000000000000"),
     (begun_elsewhere, "from step 1 on the weights were trained by training 0000000000000000")],
)  # fmt: skip
def test_weights_of_other_code_than_the_records_are_a_mismatch(edit, said, registered_package):
    """All hashes hold: it is what the training said of itself that does not fit the record."""
    arn = reseal_package(registered_package, None, edit)
    [found] = run_checks(Evidence(arn), {"training": training_checks.check_history})
    assert found.name == "training" and found.detail.startswith(said)


@pytest.mark.parametrize(
    ("edit", "said"),
    [(of_other_code, "identity of the parts in config.json is "),
     (renamed_too, "identity in config.json is "), (made_elsewhere, "stretches in config.json")],
)  # fmt: skip
def test_what_the_model_says_of_its_training_is_what_was_evaluated(edit, said, registered_package):
    check = {"artifact's training": training_checks.check_artifact}
    assert find_first_mismatch(run_checks(Evidence(registered_package.arn), check)) is None
    with object_edited(lambda r: r.model_uri, described_otherwise(edit))(registered_package):
        found = find_first_mismatch(run_checks(Evidence(registered_package.arn), check))
    assert found.detail.startswith(said)


SPECIFICATION = "InferenceSpecification"
WHY = "settings of a test"


def test_approval_rests_on_the_champion_of_the_verdict(registered_package):
    sagemaker = registered_package.client("sagemaker")
    newest = lambda: next(iter(list_approved(sagemaker, GROUP)), None)  # noqa: E731
    one, rival = another(), another()
    done = approve(one, reason=WHY)
    assert done.champion == one == newest()
    described = sagemaker.describe_model_package(ModelPackageName=one)
    assert "checks match" in described["ApprovalDescription"]
    assert approve(one).note == "it was already Approved"

    with pytest.raises(GateError, match=f"compared with no champion, although {one} is Approved"):
        approve(rival)
    two = another(one)
    assert approve(two, reason=WHY).champion == two
    late = another(one)
    with pytest.raises(GateError, match=f"compared with {one}, the champion is now {two}"):
        approve(late, reason=WHY)

    assert roll_back_champion(GROUP, "wrong on weekends").champion == one == newest()
    described = sagemaker.describe_model_package(ModelPackageName=two)
    assert described["ModelApprovalStatus"] == "Rejected"
    assert described["ApprovalDescription"] == "wrong on weekends"
    assert reject(one, "too").champion is None
    with pytest.raises(GateError, match="nothing to undo"):
        roll_back_champion(GROUP, "again")


def test_a_run_with_overrides_is_approved_for_a_stated_reason_alone(registered_package):
    """Of this run: its parameter; of the pipeline: what its upsert set."""
    arn = another(GateMaxBitsPerByte="8.25")
    said = "parameter GateMaxBitsPerByte was 8.25, the pipeline's default is 8.5"
    with pytest.raises(GateError, match=said) as refused:
        approve(arn)
    assert "--set train.loop.max_steps=4" in str(refused.value)
    assert registered_package.client("sagemaker").describe_model_package(ModelPackageName=arn)[
        "ModelApprovalStatus"
    ] == "PendingManualApproval"  # fmt: skip
    done = call_module("pipelines.approve", arn, "--reason", "asked by the board")
    assert done.returncode == 0 and "override: parameter GateMaxBitsPerByte was" in done.stdout
    told = registered_package.client("sagemaker").describe_model_package(ModelPackageName=arn)
    assert told["ApprovalDescription"].startswith("reason: asked by the board; ")
    reject(arn, "a test")


def test_a_recipe_of_the_approvers_own_names_what_differs(registered_package):
    sets = [word for setting in SETTINGS[:-1] for word in ("--set", setting)]
    ours = ["--recipe", "recipes/laptop.yaml", *sets, "--set", "gate={max_bits_per_byte: 1.5}"]
    done = call_module("pipelines.approve", registered_package.arn, *ours)
    assert done.returncode == 1
    assert "recipe gate.max_bits_per_byte was 8.5, yours is 1.5" in done.stderr


def test_a_verdict_on_other_demands_than_the_recipes_is_no_verdict(registered_package, monkeypatch):
    """The job that judged was asked for something else than the recipe in the record."""
    evidence = Evidence(registered_package.arn)
    given = evidence.read_job("Gate")["AppSpecification"]["ContainerArguments"]
    given[given.index("max_bits_per_byte") + 1] = "99.0"
    [finding] = run_checks(evidence, {"demands": QUICK["demands"]})
    assert finding.status == "mismatch"
    assert "--threshold max_bits_per_byte 99.0, but the recorded recipe says 8.5" in finding.detail


def test_nothing_is_approved_automatically_unless_the_recipe_says_so(registered_package):
    execution = registered_package.metadata["execution"]
    assert approve_automatically(execution) is None
    done = call_module("pipelines.approve", "--execution", execution, "--automatic")
    assert done.returncode == 1 and "register.approval: manual" in done.stderr


def test_a_package_that_does_not_verify_is_told_in_the_terminal_and_not_approved(
    registered_package,
):
    message = "not approved: metrics does not match its record"
    with metadata_set(loss="0.1")(registered_package), pytest.raises(GateError, match=message):
        done = call_module("pipelines.verify", registered_package.arn, "--quick")
        assert done.returncode == 1
        last, said = done.stdout.splitlines()[-1], "customer metadata loss is 0.1, evaluation.json"
        assert last.startswith(f"metrics does not match: {said}")
        assert "✓  evaluation" in done.stdout and "✗  metrics" in done.stdout
        approve(registered_package.arn)
    replaced = object_edited(lambda r: r.model_uri, lambda body: bytes(len(body)))
    with (
        replaced(registered_package),
        pytest.raises(GateError, match="artifact's bytes does not match"),
    ):
        approve(registered_package.arn)
    assert registered_package.package["ModelApprovalStatus"] == "PendingManualApproval"


@pytest.mark.sweep
def test_the_console_approves_by_the_same_checks_or_not_at_all(registered_package):
    """One that knows nothing of us sends people to the command; ours does what the command does."""
    assert registered_package.metadata["approve_with"] == "python -m pipelines.approve"
    arn = another()

    def ask_approval(owners: Sequence[Owner], comment: str) -> str:
        app = create_console_app(Account(may_write=True), "key", Application(owners=owners))
        client, at = app.test_client(), f"/do/approve?package={arn}"
        client.get("/?key=key")
        shown = html.unescape(client.get(at).get_data(as_text=True))
        token = re.search(r'name="token" value="([^"]+)"', shown)[1]
        form = {"token": token, "comment": comment}
        told = client.post(at, data=form, headers={"Origin": "http://localhost"})
        return shown + html.unescape(told.get_data(as_text=True))

    def status() -> str:
        sagemaker = registered_package.client("sagemaker")
        return sagemaker.describe_model_package(ModelPackageName=arn)["ModelApprovalStatus"]

    assert f"Run: python -m pipelines.approve {arn}" in ask_approval((), "I want it")
    assert status() == "PendingManualApproval"
    said = ask_approval(OWNERS, "")
    assert "Differs from its recipe: the pipeline was upserted with --set" in said
    assert "Justify this with" in said and status() == "PendingManualApproval"
    ask_approval(OWNERS, WHY)
    assert status() == "Approved"
    reject(arn, "a test")


def test_two_approvals_at_once_are_told(registered_package, monkeypatch):
    """Somebody approves another package between our look and our write."""
    import pipelines.approve as module

    mine, other = another(), another()
    sagemaker, decide = registered_package.client("sagemaker"), module._set_approval_status

    def slow(client, arn, status, why):
        decide(client, other, "Approved", "by somebody else")
        decide(client, arn, status, why)

    monkeypatch.setattr(module, "_set_approval_status", slow)
    with pytest.raises(GateError, match=f"Approved at the same time: {other}"):
        approve(mine, reason=WHY)
    monkeypatch.undo()
    for arn in (mine, other):
        reject(arn, "a test")
    assert not list_approved(sagemaker, GROUP)


@pytest.mark.sweep
def test_the_deployed_package_answers_with_the_score_of_the_evaluation(registered_package):
    from training.data.dataset import Dataset
    from training.export.inference import load_served_model

    sagemaker = registered_package.client("sagemaker")
    role = "arn:aws:iam::123456789012:role/trainyard"
    package = {"ModelPackageName": registered_package.arn}
    sagemaker.create_model(ModelName="m", PrimaryContainer=package, ExecutionRoleArn=role)
    variant = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 1}  # fmt: skip
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
    with pytest.raises(sagemaker.exceptions.ClientError, match="is PendingManualApproval"):
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    approve(registered_package.arn, reason=WHY)
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    waiter = sagemaker.get_waiter("endpoint_in_service")

    folder = unpack_evaluated_files(registered_package)
    test = Dataset(folder / "test")
    served = load_served_model(folder / "model")

    waiter.wait(EndpointName="e", WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    runtime = registered_package.client("sagemaker-runtime")
    sums = dict.fromkeys(("nats", "bytes", "tokens"), 0.0)
    for sample in test.read(range(len(test)))["tokens"].tolist():
        answer = runtime.invoke_endpoint(
            EndpointName="e", ContentType="application/json", Body=json.dumps({"tokens": sample})
        )
        found = json.loads(answer["Body"].read())
        assert found == pytest.approx(served.answer({"tokens": sample}), rel=1e-12)
        sums = {name: total + found[name] for name, total in sums.items()}
    metrics = json.loads(registered_package.read(registered_package.evaluation_uri))["metrics"]
    bits = sums["nats"] / math.log(2) / sums["bytes"]
    # one example at a time: float32 rounds otherwise than in the evaluation's batches
    assert bits == pytest.approx(metrics["bits_per_byte"]["value"], rel=1e-6)
    assert sums["nats"] / sums["tokens"] == pytest.approx(metrics["loss"]["value"], rel=1e-6)
    sagemaker.delete_endpoint(EndpointName="e")


@pytest.mark.sweep
def test_a_changed_loss_trains_anew_and_registers_another_model(registered_package):
    """Where only settings and data counted, the run took the old weights from the checkpoint."""
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    sets += ["--set", "register.model_package_group=changed"]
    with loss_changed(registered_package):
        done = registered_package.python(
            "pipelines.upsert", "--recipe", "recipes/laptop.yaml", *sets, "--start", "--wait"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    [package] = registered_package.client("sagemaker").list_model_packages(
        ModelPackageGroupName="changed"
    )["ModelPackageSummaryList"]
    other = replace(registered_package, arn=package["ModelPackageArn"])
    before, after = registered_package.metadata, other.metadata
    assert after["dataset_fingerprint"] == before["dataset_fingerprint"]
    for name in ("identity", "artifact_sha256", "loss", "bits_per_byte"):
        assert after[name] != before[name], name
    told = json.loads(other.read(other.evaluation_uri))["model"]["training"]
    assert [stretch["since"] for stretch in told["stretches"]] == [0]
    assert find_first_mismatch(run_checks(Evidence(other.arn), QUICK)) is None


def test_a_teardown_leaves_all_that_a_registered_model_rests_on(registered_package, monkeypatch):
    stray = f"s3://{BUCKET}/trainyard/{GROUP}/runs/strayexecute/train/model.tar.gz"
    registered_package.write(stray, b"of a run that registered nothing")
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{GROUP}\n"))
    recipe = str(CHECKOUT / "recipes/laptop.yaml")
    done = call_module("pipelines.teardown", "--recipe", recipe, "--remove", *sets)
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.raises(registered_package.client("s3").exceptions.NoSuchKey):
        registered_package.read(stray)
    findings = verify(registered_package.arn, registered_package.checkout, deep=True)
    assert {finding.status for finding in findings} == {"ok"}
