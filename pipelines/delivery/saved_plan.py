"""Write and read plan.json: a plan that can be approved, and then applied unchanged or not at all.

It contains the complete request, the hashes of the code, the pipeline's state at that time, the
plan's output, and a hash of all these, which reveals a truncated or edited file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.compile.compilation import Asset, CompiledPipeline
from pipelines.delivery.pipeline_objects import ensure_bucket, upload_changed_files
from pipelines.rules import check_definition
from trainyard.common import atomic_file
from trainyard.common.errors import DefinitionError, PlanError
from trainyard.common.hashes import hash_json
from trainyard.plan.definition_diff import Diff, diff_definitions
from trainyard.plan.deployed_pipeline import DeployedPipeline, State
from trainyard.plan.pipeline_plan import Plan
from trainyard.terminal import console
from trainyard.validate.all_checks import format_finding, print_findings

FORMAT = 1
MAX_CHANGES = 5  # changes in one message


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """The parts of a plan file that are needed to apply it."""

    path: Path
    recipe: Path
    overrides: tuple[str, ...]
    environment: str | None
    target_state: State
    assets: Mapping[str, str]
    """SHA-256 of each code folder's content, by its key in the bucket."""

    previous_state: State | None
    """The pipeline as it was when planned; None if it did not exist."""

    created_at: datetime

    def refuse_other_recipe(self, definition: CompiledPipeline) -> None:
        """Refuse the plan if this checkout compiles to something else.

        Raises:
            PlanError: plan and definition differ; names the differences.
        """
        state = definition.state
        if definition.environment != self.environment:
            raise PlanError(
                f"{self.path}: is a plan for {_describe_environment(self.environment)}, and "
                f"cannot be applied to {_describe_environment(definition.environment)}: leave out "
                "--env, or create a plan for that environment"
            )
        if state.name != self.target_state.name:
            raise PlanError(
                f"{self.path}: is a plan of pipeline {self.target_state.name}, and {self.recipe} "
                f"defines {state.name}: give the recipe that was planned"
            )
        assets = _map_asset_hashes(definition.assets)
        if state.fingerprint != self.target_state.fingerprint or assets != self.assets:
            difference = format_diff(diff_definitions(self.target_state, state)) or "the code"
            raise PlanError(
                f"{self.path}: this checkout does not compile to what was planned; changed since "
                f"then: {difference}. Check out the planned commit, or create the plan again"
            )

    def refuse_changed_pipeline(self, deployment: DeployedPipeline | None) -> None:
        """Refuse the plan if the deployed pipeline has changed since the plan was created.

        Raises:
            PlanError: the pipeline was changed, created or deleted; says what changed, when and by
            whom.
        """
        planned_fingerprint = self.previous_state.fingerprint if self.previous_state else None
        if planned_fingerprint == (deployment.state.fingerprint if deployment else None):
            return
        if deployment is None:
            raise PlanError(
                f"pipeline {self.target_state.name} was deleted after {self.path} was created: "
                "create the plan again"
            )
        difference = (
            format_diff(diff_definitions(self.previous_state, deployment.state))
            if self.previous_state
            else "it was created"
        )
        raise PlanError(
            f"pipeline {self.target_state.name} has changed since {self.path} was created at "
            f"{self.created_at:%Y-%m-%d %H:%M:%S} UTC: {deployment.by} changed it at "
            f"{deployment.changed_at:%Y-%m-%d %H:%M:%S}: {difference}. Nothing was upserted: "
            "create the plan again"
        )


def _describe_environment(environment: str | None) -> str:
    return f"environment {environment}" if environment else "no environment"


def format_diff(diff: Diff) -> str:
    """Describe a difference in one line, for messages."""
    words = [f"{c.sign} {c.path} {c.old or ''} → {c.new or ''}" for c in diff.pipeline]
    words += [f"{c.sign} parameter {c.path} {c.old or ''} → {c.new or ''}" for c in diff.parameters]
    for step in diff.steps:
        paths = ", ".join(c.path for c in step.changes[:MAX_CHANGES])
        words.append(f"{step.sign} step {step.name}{f' ({paths})' if step.sign == '~' else ''}")
    return "; ".join(words[:MAX_CHANGES]) + ("; …" if len(words) > MAX_CHANGES else "")


def as_json(plan: Plan, definition: CompiledPipeline) -> dict[str, Any]:
    """Return the plan as ``--json`` prints it, with the hashes of the definition's code."""
    return plan.as_json() | {"assets": _map_asset_hashes(definition.assets)}


def _map_asset_hashes(assets: Sequence[Any]) -> dict[str, str]:
    """Return the SHA-256 of each asset, by its key."""
    return {asset.key: asset.sha256 for asset in assets}


def write_plan(
    path: Path, plan: Plan, definition: CompiledPipeline, recipe: Path, overrides: Sequence[str]
) -> None:
    """Write ``plan`` of ``definition``, compiled from ``recipe`` with ``overrides``, atomically.

    Raises:
        PlanError: the file cannot be written.
    """
    content = as_json(plan, definition) | {
        "recipe": str(recipe),
        "environment": definition.environment,
        "overrides": list(overrides),
    }
    tree = {"format": FORMAT, "sha256": hash_json(content), "plan": content}
    try:
        atomic_file.write_file(path, json.dumps(tree, indent=1) + "\n")
    except OSError as error:
        raise PlanError(f"--out {path}: cannot be written: {error}") from None


def read_plan(path: Path) -> SavedPlan:
    """Read a saved plan.

    Raises:
        PlanError: the file is missing, truncated, edited, or of another version.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PlanError(
            f"{path}: no such plan; python -m pipelines.plan --out creates one"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(
            f"{path}: is not a complete plan ({error}); create the plan again"
        ) from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise PlanError(f"{path}: is not a plan of format {FORMAT}; create the plan again")
    content = tree.get("plan")
    if not isinstance(content, dict) or tree.get("sha256") != hash_json(content):
        raise PlanError(f"{path}: was truncated or edited; create the plan again")
    return SavedPlan(
        path=path,
        recipe=Path(content["recipe"]),
        overrides=tuple(content["overrides"]),
        environment=content.get("environment"),
        target_state=_parse_state(content["wanted"]),
        assets=content["assets"],
        previous_state=content["deployed"] and _parse_state(content["deployed"]),
        created_at=datetime.fromisoformat(content["made"]),
    )


def _parse_state(tree: Mapping[str, Any]) -> State:
    """Return the state in a saved plan, without its fingerprint, which is computed again."""
    return State(**{key: value for key, value in tree.items() if key != "fingerprint"})


# Upload what a compiled pipeline refers to, and refuse what the service would refuse later.

DEFINITION = "definition.json"
"""Name of the object with a definition that another tool than upsert deploys."""


def build_definition_asset(definition: CompiledPipeline) -> Asset:
    """Return the asset of the definition itself; its folder is next to those of the code."""
    code = definition.assets[0]
    return Asset(code.bucket, code.prefix, {DEFINITION: definition.body.encode()})


def refuse_invalid_definition(definition: CompiledPipeline) -> None:
    """Check the definition by our rules, and print warnings.

    Raises:
        DefinitionError: a rule finds an error, which the service would find later.
    """
    findings = check_definition(definition.body)
    wrong = [format_finding(finding) for finding in findings if finding.severity == "error"]
    if wrong:
        raise DefinitionError(f"pipeline {definition.name}:\n  " + "\n  ".join(wrong))
    if findings:
        print_findings(findings, "nothing that the service refuses")


def create_buckets(s3: Any, definition: CompiledPipeline) -> None:
    """Create the buckets for the pipeline's code if they do not exist."""
    for bucket in sorted({asset.bucket for asset in definition.assets}):
        if ensure_bucket(s3, bucket, definition.region):
            console.print(f"created bucket {bucket}")


def upload_code(s3: Any, definition: CompiledPipeline) -> int:
    """Upload the code folders that are missing or different; return the number of bytes."""
    create_buckets(s3, definition)
    return sum(
        upload_changed_files(s3, asset.bucket, asset.key, asset.files, kms_key=definition.kms_key)
        for asset in definition.assets
    )
