"""Record where the models of a definition will come from, as an asset that the gate step reads.

The record contains the definition's hash, and the definition names the record's folder, which is
named by the record's content. To break this circle, the hash is computed from the definition's text
with that folder's name replaced by zeros (``mask_record_name``).
"""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conditions.gate_documents import OriginRecord, RecipeRecord
from pipelines.compile.compilation import Asset
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import Account
from pipelines.recipe.extended_recipe import hash_recipe
from steps.train.config import TrainStepConfig
from training.identity import Parts
from trainyard.aws_clients import service_errors
from trainyard.common.errors import ServiceError
from trainyard.common.hashes import hash_existing_file
from trainyard.language.definition_document import iter_steps

FOLDER = "code"
"""Folder of the assets: the jobs' role may read it, and a plan shows the differences in it."""
BLANK = "0" * 32
"""Replaces the name of the record's folder in a blanked definition."""
_RECORD_NAME = re.compile(
    r'("InputName": "provenance",\s+"S3Input": \{\s+"S3Uri": "[^"]*/code/)[0-9a-f]{32}/'
)
FORMAT = 2
"""Format version of provenance.json: version 2 includes the hashes of the tables of scores."""
LOCKS = ("locks/packages.txt", "locks/torch.txt", "steps/requirements.txt", "pyproject.toml")
"""Files that say which packages a job installs in addition to its image's. The artifact's
packages.txt lists everything that was installed where the model was trained, including the image's
packages.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Source of a recipe's text, and the hash of the uncommitted changes."""

    changes_sha256: str | None = None
    """Hash of the difference from the commit; None if there is none, or git is not available."""
    recipe_file: str | None = None
    """Path relative to the checkout, or the bare file name if it is outside."""
    recipe_file_sha256: str | None = None
    """Hash of the recipe's file; if it extends others, one hash over the hashes of all of them."""
    overrides: tuple[str, ...] = ()
    environment: str | None = None
    """Name of the recipe's environment; None if it has none."""


NOWHERE = Origin()
"""Origin of a recipe that was created in memory."""


def build_origin(
    path: Path, overrides: Iterable[str], environment: str | None, checkout: Path
) -> Origin:
    """Return the origin of the recipe in the file ``path``."""
    is_in_checkout = path.resolve().is_relative_to(checkout)
    return Origin(
        changes_sha256=hash_changes(checkout),
        recipe_file=path.resolve().relative_to(checkout).as_posix()
        if is_in_checkout
        else path.name,
        recipe_file_sha256=hash_recipe(path),
        overrides=tuple(overrides),
        environment=environment,
    )


def build_placeholder_uri(root_uri: str) -> str:
    """Return the S3 URI that is used for the record's folder while a definition is compiled."""
    return f"{root_uri}/{FOLDER}/{BLANK}/"


def mask_record_name(definition: str) -> str:
    """Return the definition's text with the name of its record's folder replaced by zeros."""
    return _RECORD_NAME.sub(rf"\g<1>{BLANK}/", definition)


def add_provenance(
    definition: str,
    recipe: Recipe,
    account: Account,
    commit: str,
    origin: Origin,
    checkout: Path,
    assets: Iterable[Asset],
    prefix: str,
    training: Parts,
) -> tuple[str, Asset]:
    """Return (the definition with the name of its record, the record).

    Args:
        definition: the definition's text, compiled with ``build_placeholder_uri``.
        assets: the code folders that it refers to.
        prefix: key prefix of all objects of this pipeline.
        training: the parts that the weights will depend on.
    """
    recipe_json = recipe.model_dump_json(by_alias=True, indent=1).encode()
    all_steps = iter_steps(json.loads(definition)["Steps"])
    steps = {step.name: step.document for step in all_steps if step.type != "Condition"}
    code = {
        name: {a.uri: a.sha256 for a in assets if a.uri in json.dumps(step)}
        for name, step in steps.items()
    }
    record: OriginRecord = {
        "format": FORMAT,
        "pipeline": recipe.pipeline.name,
        "workload": recipe.kind,
        "primary_metric": recipe.workload_spec.primary_metric,
        "directions": dict(recipe.workload_spec.metrics),
        "account": asdict(account),
        "commit": commit,
        "changes_sha256": origin.changes_sha256,
        "recipe": _build_recipe_record(origin, recipe_json),
        "lock": {name: hash_existing_file(checkout / name) for name in LOCKS},
        "seed": _find_seed(recipe.train),
        "training": {"code_sha256": training.code_sha256, "start_from": training.start},
        # A tag can be moved, so without a digest the content of the image is not known.
        "images": {
            name: {"uri": uri, "digest": uri.partition("@")[2] or None}
            for name, step in steps.items()
            for uri in _iter_image_uris(step)
        },
        "code": {name: folders for name, folders in code.items() if folders},
        "definition_sha256": hashlib.sha256(definition.encode()).hexdigest(),
    }
    text = json.dumps(record, indent=1).encode()
    files = {"provenance.json": text, "recipe.json": recipe_json}
    asset = Asset(account.bucket, f"{prefix}/{FOLDER}", files)
    blank = build_placeholder_uri(f"s3://{account.bucket}/{prefix}")
    return definition.replace(blank, asset.uri), asset


class EnvironmentsRecord(RecipeRecord, total=False):
    """The record of a recipe that may have environments."""

    environment: str
    """Name of the environment; absent if there is none."""


def _build_recipe_record(origin: Origin, recipe_json: bytes) -> EnvironmentsRecord:
    """Return the record's entry about the recipe: its file, hashes, overrides and environment."""
    record: EnvironmentsRecord = {
        "file": origin.recipe_file,
        "file_sha256": origin.recipe_file_sha256,
        "overrides": list(origin.overrides),
        "sha256": hashlib.sha256(recipe_json).hexdigest(),
    }
    if origin.environment is not None:
        record["environment"] = origin.environment
    return record


def read_recorded_recipe(s3: Any, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the resolved recipe from the record that the definition names; None if it names none.

    Raises:
        ServiceError: the record is missing, is not JSON, or AWS refused to read it.
    """
    inputs = (
        job_input
        for step in iter_steps(document["Steps"])
        for job_input in step.arguments.get("ProcessingInputs", ())
    )
    record_inputs = (
        job_input for job_input in inputs if job_input.get("InputName") == "provenance"
    )
    uris = (job_input.get("S3Input", {}).get("S3Uri") for job_input in record_inputs)
    folder = next((uri for uri in uris if isinstance(uri, str)), None)
    return None if folder is None else _read_json(s3, f"{folder.rstrip('/')}/recipe.json")


def _read_json(s3: Any, uri: str) -> dict[str, Any]:
    """Return the JSON object at an S3 URI, or raise ServiceError."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with service_errors(f"reading the deployed recipe {uri}"):
        body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    try:
        return dict(json.loads(body))
    except (TypeError, ValueError) as error:
        raise ServiceError(f"{uri}: is not a recipe: {error}; upsert again") from None


def _iter_image_uris(step: Mapping[str, Any]) -> Iterator[str]:
    """Yield the URIs of the container images in a step's request."""
    arguments = step["Arguments"]
    key_pairs = (("AppSpecification", "ImageUri"), ("AlgorithmSpecification", "TrainingImage"))
    yield from (arguments[a][b] for a, b in key_pairs if a in arguments)
    for container in arguments.get("InferenceSpecification", {}).get("Containers", ()):
        yield container["Image"]


def _find_seed(train: TrainStepConfig) -> int | None:
    """Return the seed of the loop, or a script's argument ``seed``; None if it is not known."""
    seed = train.loop.seed if train.loop else train.arguments.get("seed")
    return seed if isinstance(seed, int) else None


def find_current_commit(checkout: Path) -> str:
    """Return the commit that CodeBuild resolved, or git's HEAD, with ``-dirty`` appended if files
    were changed, or ``unknown`` if there is neither.
    """
    if revision := os.environ.get("CODEBUILD_RESOLVED_SOURCE_VERSION"):
        return revision
    head = _run_git(checkout, "rev-parse", "HEAD")
    # A definition can also be built from an unpacked archive, without git.
    if head is None:
        return "unknown"
    return f"{head}-dirty" if _run_git(checkout, "status", "--porcelain") else head


def hash_changes(checkout: Path) -> str | None:
    """Return the SHA-256 of the difference from the commit: git's diff and the untracked files.

    Return None if nothing differs or git is not available.
    """
    if not _run_git(checkout, "status", "--porcelain"):
        return None
    diff = _run_git(checkout, "diff", "--binary", "HEAD") or ""
    digest = hashlib.sha256(diff.encode(errors="surrogateescape"))
    new_files = _run_git(checkout, "ls-files", "-z", "--others", "--exclude-standard") or ""
    for name in filter(None, new_files.split("\0")):
        content = (checkout / name).read_bytes() if (checkout / name).is_file() else b""
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


def _run_git(checkout: Path, *arguments: str) -> str | None:
    """Return the command's stripped output, or None if it failed or git is not installed."""
    try:
        process = subprocess.run(
            ["git", "-C", str(checkout), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError:  # no git on this machine
        return None
    return process.stdout.strip() if process.returncode == 0 else None
