"""Compute again in a checkout: the verdict from the evidence, the definition from the recipe.

Only code of the checkout is run, never code from S3, and only if it is the recorded code.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.compile.compilation import collect_step_code
from pipelines.compile.provenance_asset import find_current_commit, hash_changes
from pipelines.recipe import extended_recipe
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.record_checks import (
    HASH_CHARACTERS,
    Mismatch,
    UncheckedError,
    describe_difference,
)
from trainyard.common.errors import DefinitionError, GateError, RecipeError

Check = Callable[[Evidence], str]
ML = "/opt/ml/"


def list_checks(checkout: Path, *, is_named: bool) -> dict[str, Check]:
    """Return the checks that need ``checkout``, by name.

    ``is_named``: whether the user named it, so that a difference of the commit is a mismatch.
    """
    return {
        "verdict": lambda evidence: check_verdict(evidence, checkout),
        "recipe": lambda evidence: check_recipe(evidence, checkout),
        "commit": lambda evidence: check_commit(evidence, checkout, is_named=is_named),
        "definition again": lambda evidence: check_definition(evidence, checkout),
    }


def check_verdict(evidence: Evidence, checkout: Path) -> str:
    """Check that the gate's job gives the same verdict if it is run again on the same inputs."""
    for file, new_document in rerun_gate(evidence, checkout).items():
        stored_document = evidence.provenance
        if file == "gate.json":
            stored_document = evidence.read_json(evidence.find_source("Constraints")["S3Uri"])
        else:
            # The hash of gate.json cannot be compared, because the last digits may differ.
            new_document |= {"gate_sha256": stored_document.get("gate_sha256")}
        if mismatch := describe_difference(new_document, stored_document):
            raise Mismatch(f"{file}: {mismatch}; computed again on the same evidence")
    return "the same, computed again"


def rerun_gate(
    evidence: Evidence,
    checkout: Path,
    look_number: int | None = None,
    arguments: list[Any] | None = None,
) -> dict[str, Any]:
    """Run the recorded gate on the recorded evidence; return its gate.json and provenance.json.

    Args:
        look_number: the number of the look, instead of the execution's own.
        arguments: the arguments of the gate's job, instead of the execution's own.

    Raises:
        UncheckedError: the gate's code in ``checkout`` differs from the recorded code, or fails.
    """
    if not _has_recorded_gate_code(evidence, checkout):
        raise UncheckedError("the gate's code in this checkout is not the recorded one")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, source in evidence.find_job_inputs("Gate").items():
            if name != "code":
                _download_input(evidence, source, root)
        if arguments is None:
            arguments = evidence.read_job("Gate")["AppSpecification"].get("ContainerArguments", [])
        if look_number is not None:
            arguments = [*arguments, "--look", str(look_number)]  # the last --look counts
        _run(checkout, ["steps.gate.job", *arguments, "--root", folder])
        output = root / "processing/output/gate"
        files = ("gate.json", "provenance.json")
        return {name: json.loads((output / name).read_bytes()) for name in files}


def require_gate_pass(
    evidence: Evidence,
    checkout: Path,
    refusal: str,
    look_number: int | None = None,
    arguments: list[Any] | None = None,
) -> None:
    """Run the gate again with other arguments, and require that it passes the model.

    Args:
        refusal: for error messages: what is refused, and why the gate is run again.
        look_number, arguments: as in ``rerun_gate``.

    Raises:
        GateError: the gate rejects the model, or cannot be run here.
    """
    try:
        gate = rerun_gate(evidence, checkout, look_number, arguments)["gate.json"]
    except UncheckedError as error:
        raise GateError(
            f"{evidence.arn}: {refusal}, and the gate cannot be run again here: {error}; try in a "
            f"checkout of commit {evidence.provenance.get('commit')}"
        ) from None
    if gate["verdict"] != "pass":
        raise GateError(f"{evidence.arn}: {refusal}: {gate['reason']}")


def _has_recorded_gate_code(evidence: Evidence, checkout: Path) -> bool:
    """Return whether the gate's code here is the recorded one (``code`` checks that in S3)."""
    try:
        local_code = collect_step_code(checkout, "gate", None)
    except DefinitionError as error:
        raise UncheckedError(str(error)) from None
    recorded_uris = evidence.provenance["code"]["Gate"]
    return any(
        _exclude_requirements(evidence.read_folder(uri)) == _exclude_requirements(local_code)
        for uri in recorded_uris
    )


def _exclude_requirements(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files without requirements.txt."""
    # requirements.txt is left out, because its packages depend on the recipe.
    return {name: body for name, body in files.items() if name != "requirements.txt"}


def check_recipe(evidence: Evidence, checkout: Path) -> str:
    """Check that the recipe's file in the checkout, and those that it extends, are the recorded
    ones.

    Raises:
        UncheckedError: the file differs, but the checkout is at another commit.
        Mismatch: the file was edited.
    """
    path, source = _find_recipe(evidence, checkout), evidence.provenance["recipe"]
    try:
        digest = extended_recipe.hash_recipe(path)
    except RecipeError as error:
        digest = f"unknown ({error})"
    if digest == source["file_sha256"]:
        return str(source["file"])
    recorded_commit = str(evidence.provenance.get("commit"))
    if find_current_commit(checkout).removesuffix("-dirty") != recorded_commit.removesuffix(
        "-dirty"
    ):
        raise UncheckedError(
            f"{source['file']} differs in this checkout, which is at another commit"
        )
    raise Mismatch(
        f"{source['file']} was edited: its SHA-256 is {digest}, "
        f"provenance.json says {source['file_sha256']}"
    )


def check_commit(evidence: Evidence, checkout: Path, *, is_named: bool = False) -> str:
    """Check that the checkout is at the recorded commit, with the recorded uncommitted changes.

    Raises:
        Mismatch: commit or changes differ, and the user named the checkout (``is_named``).
        UncheckedError: they differ, and the checkout is only the current one.
    """
    recorded_commit, checkout_commit = (
        evidence.provenance.get("commit"),
        find_current_commit(checkout),
    )
    refuse = Mismatch if is_named else UncheckedError
    if checkout_commit != recorded_commit:
        raise refuse(
            f"the checkout is at {checkout_commit}, the package was built from {recorded_commit}"
        )
    changes = evidence.provenance.get("changes_sha256")
    if hash_changes(checkout) != changes:
        raise refuse("the checkout's uncommitted changes are not those the package was built with")
    return checkout_commit[:HASH_CHARACTERS] + (
        ", with the same uncommitted changes" if changes else ""
    )


def check_definition(evidence: Evidence, checkout: Path) -> str:
    """Check that compiling the recipe in the checkout gives exactly the execution's definition."""
    check_commit(evidence, checkout)
    _find_recipe(evidence, checkout)
    recipe_record, account = evidence.provenance["recipe"], evidence.provenance["account"]
    sets = [word for override in recipe_record["overrides"] for word in ("--set", override)]
    environment = {
        "AWS_REGION": account["region"],
        "SAGEMAKER_PIPELINE_ROLE_ARN": account["role"],
        "SAGEMAKER_JOB_ROLE_ARN": account["job_role"],
        "ARTIFACT_BUCKET": account["bucket"],
    }
    sets += ["--env", recipe_record["environment"]] if "environment" in recipe_record else []
    words = ["pipelines.definition", "--recipe", recipe_record["file"], *sets]
    if _run(checkout, words, environment).rstrip("\n") != evidence.definition:
        raise Mismatch(f"compiling {recipe_record['file']} again gives another definition")
    return "byte for byte"


def _find_recipe(evidence: Evidence, checkout: Path) -> Path:
    """Return the recipe's file in the checkout; raise UncheckedError if it is not there."""
    file = evidence.provenance.get("recipe", {}).get("file")
    if not file or not (checkout / file).is_file():
        raise UncheckedError(f"the recipe {file} is not in the checkout")
    return checkout / file


def _download_input(evidence: Evidence, source: dict[str, str], root: Path) -> None:
    """Download a job's input below ``root``, which replaces /opt/ml in the input's path."""
    folder = root / source["LocalPath"].removeprefix(ML)
    uri = source["S3Uri"].rstrip("/")
    for name, content in evidence.read_folder(uri).items():
        target = folder / name
        # A key in S3 may contain "..", which would lead out of the folder.
        if not target.resolve().is_relative_to(root.resolve()):
            raise Mismatch(f"{uri}/{name} leads out of the input's folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _run(checkout: Path, words: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a module of the checkout; return what it prints, or raise UncheckedError if it fails."""
    process = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)} | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        last = (process.stderr or process.stdout).strip().splitlines()[-1:]
        raise UncheckedError(f"python -m {words[0]} failed: {' '.join(last)}")
    return process.stdout
