"""Delete every statement of the derived roles of the shipped recipes in turn: does something fail?

python -m benchmarks.iam [--recipe recipes/laptop.yaml] [--run] [--json FILE]

The roles are made in the emulator's IAM, which holds requests to them. plan and upsert really run,
with the roles that CI has; with --run the laptop's recipe does, to a registered model, with the
roles of pipeline and jobs. The other calls of a pipeline are derived from its definition
(``derived_requests``). Every call must be allowed. Then each statement is deleted in turn, and all
calls of its role are evaluated again: one of its actions must be denied. Else the statement is not
needed, and is listed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import boto3
import typer

from benchmarks import harness
from benchmarks.harness import CHECKOUT, Figure, JsonFile, Section, Target
from benchmarks.iam.derived_requests import DERIVED_CALLS
from pipelines.infrastructure.serving_roles import build_recipe_subject
from trainyard.aws_clients import create_client
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.iam.access_keys import TRUST
from trainyard.emulator.iam.account_policies import DERIVED_POLICY
from trainyard.emulator.request_scope import ACCOUNT
from trainyard.emulator.server import Endpoint, serve_emulator
from trainyard.permissions.policy_documents import parse_policy
from trainyard.permissions.policy_evaluation import Decision, Policies, Request, evaluate_request
from trainyard.permissions.role_template import derive_policy

LAPTOP = "recipes/laptop.yaml"
FEW = (
    *("train.loop.max_steps=20", "train.loop.warmup_steps=2", "train.loop.validation_interval=10"),
    *("gate.max_bits_per_byte=20", "gate.below_baseline=null"),
)
"""Overrides that make the laptop's run short, and its gate pass."""
STAND_INS = {
    "recipes/finetune.yaml": (
        "train.start_from.model_package=null",
        "train.start_from.model=s3://trainyard-laptop/m/model.tar.gz",
        f"train.start_from.model_sha256={'a' * 64}",
    )
}
"""Recipe → overrides in place of the package of another recipe's run."""
CHANGE = "shard.max_runtime_minutes=77"
NAMES = {"pipeline": "bench", "job": "bench-job", "plan": "plan", "ci": "ci", "events": "events"}
"""Role → its name in IAM."""
ARNS = {role: f"arn:aws:iam::{ACCOUNT}:role/{name}" for role, name in NAMES.items()}
OWN = (f"aws.role={ARNS['pipeline']}", f"aws.job_role={ARNS['job']}", f"aws.account={ACCOUNT}")
"""Overrides that give a recipe the roles above, in the emulator's account."""


@dataclass(slots=True)
class Trial:
    """A recipe's roles, and the calls that they must allow."""

    recipe: str
    policies: Mapping[str, dict[str, Any]]
    """Role → policy."""

    ran: int = 0
    """Calls that were really made."""

    calls: dict[str, list[Request]] = field(default_factory=lambda: defaultdict(list))
    """Role → requests."""


def main(
    recipe: Annotated[list[str] | None, typer.Option(help="Only this recipe.")] = None,
    run: Annotated[bool, typer.Option(help="Run the laptop's recipe: minutes.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Ask whether each statement of the derived roles is needed; exit 1 where too few are."""
    shipped = sorted(str(p.relative_to(CHECKOUT)) for p in CHECKOUT.glob("recipes/*.yaml"))
    trials = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-iam-") as folder:
        for path in harness.track_steps("recipes", recipe or shipped):
            boto3.DEFAULT_SESSION = None  # it remembers the keys of another emulator
            with (
                serve_emulator(Path(folder) / Path(path).stem) as endpoint,
                apply_environment(endpoint.env),
            ):
                trials.append(try_recipe(endpoint, path, run and path == LAPTOP))
    section = judge_trials(trials)
    harness.show_section(section)
    raise typer.Exit(harness.write_report([section], json_file, {"run": run}))


def try_recipe(endpoint: Endpoint, path: str, run: bool) -> Trial:
    """Create the recipe's roles, run what can be run with them, and derive the other calls."""
    own = [*OWN, *STAND_INS.get(path, ())]
    subject = build_recipe_subject(Path(path), own)
    trial = Trial(path, {role: derive_policy(subject, role) for role in NAMES})
    decisions: list[Decision] = []
    endpoint.app.aws.authority.observe = decisions.append
    _make_roles(trial.policies)
    create_client("s3").create_bucket(Bucket=str(subject.root).split("/")[2])
    if run:
        _run_verb(endpoint, "corpus", path, own)
    chosen = [*own, *FEW] if run else own
    for further in ((), ("--start",)):
        _run_verb(endpoint, "plan", path, chosen, ARNS["plan"])
        _run_verb(endpoint, "upsert", path, chosen, ARNS["ci"], *further)
    found = create_client("sagemaker").list_pipeline_executions(PipelineName=subject.name)
    [execution] = found["PipelineExecutionSummaries"]
    endpoint.wait(execution["PipelineExecutionArn"])  # most fail: their data are not here
    change = {"PipelineName": subject.name, "PipelineDescription": "by hand"}
    create_client("sagemaker").update_pipeline(**change)
    for role in ("plan", "ci"):  # both look: at the execution, too
        _run_verb(endpoint, "plan", path, [*chosen, CHANGE], ARNS[role])
    known = {arn: role for role, arn in ARNS.items()}
    for request in (decision.request for decision in decisions):
        role = known.get(request.principal.role)  # not SageMaker's own, about a role's trust
        if role and not _is_tolerated(request):
            trial.calls[role].append(request)
    trial.ran = len(decisions)
    for role, derived in DERIVED_CALLS.items():
        trial.calls[role] += derived(subject, ARNS[role])
    return trial


def _is_tolerated(request: Request) -> bool:
    """Return whether it is HeadBucket (no prefix), whose denial ``ensure_bucket`` tolerates."""
    return request.action == "s3:ListBucket" and "s3:prefix" not in request.context


def _make_roles(policies: Mapping[str, dict[str, Any]]) -> None:
    iam, trust = create_client("iam"), json.dumps(TRUST)
    for role, policy in policies.items():
        name = {"RoleName": NAMES[role]}
        iam.create_role(**name, AssumeRolePolicyDocument=trust)
        document = json.dumps(policy)
        iam.put_role_policy(**name, PolicyName=DERIVED_POLICY, PolicyDocument=document)


def _run_verb(
    endpoint: Endpoint, verb: str, path: str, overrides: Sequence[str], role: str = "", *more: str
) -> None:
    """Run a pipeline command with a role's keys; a plan's status 2 means that something changes."""
    own = {**os.environ, **endpoint.env}
    if role:
        answer = create_client("sts").assume_role(RoleArn=role, RoleSessionName="bench")
        keys = answer["Credentials"]
        own |= {"AWS_ACCESS_KEY_ID": keys["AccessKeyId"], "AWS_SESSION_TOKEN": keys["SessionToken"],
                "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"]}  # fmt: skip
    command = [sys.executable, "-m", f"pipelines.{verb}", "--recipe", path, *more]
    command += [part for one in overrides for part in ("--set", one)]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=own, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 2):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def judge_trials(trials: Sequence[Trial]) -> Section:
    """Return a section with how many calls are allowed, and how many statements are needed."""
    columns = ("recipe", "calls", "made", "allowed", "statements", "needed")
    section = Section("iam", "Derived roles", columns)
    totals = []
    for trial in trials:
        found = [_judge_role(section, trial, role) for role in NAMES]
        calls, allowed, *needed = (sum(column) for column in zip(*found, strict=True))
        totals.append((calls, allowed, *needed))
        row = (calls, trial.ran, allowed, *needed)
        section.rows.append((trial.recipe, *map(str, row)))
        section.data[trial.recipe] = dict(zip(columns[1:], row, strict=True))
    calls, allowed, statements, needed = (sum(column) for column in zip(*totals, strict=True))
    section.targets = [
        Target("calls that the derived roles allow", Figure((allowed / calls,)), "≥", 1, "%"),
        Target("statements that are needed", Figure((needed / statements,)), "≥", 0.95, "%"),
    ]
    return section


def _judge_role(section: Section, trial: Trial, role: str) -> tuple[int, int, int, int]:
    """Return (calls, allowed calls, statements, statements without which a call is denied)."""
    statements, calls = trial.policies[role]["Statement"], trial.calls[role]
    denied = _list_denied_calls(statements, calls)
    section.notes += [f"{trial.recipe}, {role}: {decision.message}" for decision in denied]
    needed = 0
    for statement in statements:
        rest = [one for one in statements if one is not statement]
        lost = [decision.request.action for decision in _list_denied_calls(rest, calls)]
        is_needed = any(action in statement["Action"] for action in lost)
        needed += is_needed
        if not is_needed:
            section.notes.append(f"{trial.recipe}, {role}: {statement['Sid']} is not needed")
    return len(calls), len(calls) - len(denied), len(statements), needed


def _list_denied_calls(
    statements: Sequence[dict[str, Any]], calls: Sequence[Request]
) -> list[Decision]:
    if not statements:
        return [Decision(call, False) for call in calls]
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    policies = Policies(identity=(parse_policy("derived", document),))
    return [d for call in calls if not (d := evaluate_request(call, policies)).is_allowed]


if __name__ == "__main__":
    typer.run(main)
