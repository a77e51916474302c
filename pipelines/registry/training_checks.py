"""Check the code, data and base model of a training against the training's own record."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pipelines.recipe.script_section import NAME
from pipelines.recipe.sections import Data
from pipelines.registry.package_evidence import Absent, Evidence
from pipelines.registry.record_checks import HASH_CHARACTERS, Mismatch, UncheckedError, require_same
from steps.tune.config import TuneConfig
from steps.workload_settings import as_hyperparameters
from training.checkpoint.marker import Lineage
from training.identity import JOB, Parts, describe_changes, hash_relevant_code
from training.input_shares import list_identity_shares
from training.weights.finetuning import hugging_face_folder
from training.weights.finetuning.adapters import Tuning
from training.weights.finetuning.hugging_face_folder import ARCHIVE, TRAINYARD_FILES
from training.weights.starting_weights import BASE, StartFrom
from trainyard.common.errors import DataError
from trainyard.common.hashes import combine_file_hashes, hash_json

CONFIG = "config.json"
DRIVERS = "sm_train.sh"
"""File that is only in the folder of AWS's drivers."""
DESCRIPTION = "code/trainyard.json"
"""Description in a script's artifact, next to the files that the script itself wrote."""


def check_history(evidence: Evidence) -> str:
    """Check that every training step used the recorded code and data, or those of the training that
    it continues.

    A stretch is a number of consecutive optimizer steps trained under the same conditions.
    """
    training = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])["model"]["training"]
    require_same(
        "identity of the training",
        training["identity"],
        evidence.provenance.get("identity"),
        "provenance.json",
    )
    recorded_sha256 = evidence.provenance["training"]["code_sha256"]
    require_same(
        "SHA-256 of the training's code in S3",
        hash_json(_hash_train_code(evidence)),
        recorded_sha256,
        "provenance.json",
    )
    start = evidence.provenance["training"].get("start_from") or {}
    for stretch in training["stretches"]:
        prefix = f"from step {stretch['since'] + 1} on the weights were trained"
        # A stretch of another training is allowed only if the recipe continues a checkpoint.
        if stretch["identity"] != training["identity"]:
            if not start.get("checkpoint"):
                raise Mismatch(
                    f"{prefix} by training {stretch['identity']}, and the recipe does not continue "
                    "another one"
                )
            continue
        if stretch["code_sha256"] != recorded_sha256:
            raise Mismatch(
                f"{prefix} by other code, {stretch['code_sha256'][:HASH_CHARACTERS]}, than "
                f"provenance.json says, {recorded_sha256[:HASH_CHARACTERS]}"
            )
        if stretch["data"] != evidence.provenance.get("train_fingerprint"):
            raise Mismatch(f"{prefix} on other data, {stretch['data']}, than provenance.json says")
    count = len(training["stretches"])
    return f"{training['identity'][:HASH_CHARACTERS]}, {count} stretch{'' if count == 1 else 'es'}"


def check_artifact(evidence: Evidence) -> str:
    """Check that the model's own description agrees with evaluation.json, the record and the
    recipe, and that its identity follows from its content.

    The description is config.json, or for a user's script, code/trainyard.json.
    """
    config = DESCRIPTION if is_script_training(evidence) else CONFIG
    training_record = read_description(evidence)["training"]
    lineage = Lineage.model_validate({k: v for k, v in training_record.items() if k != "identity"})
    parts = lineage.parts
    training = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])["model"]["training"]
    require_same(
        f"identity in {config}",
        training_record["identity"],
        training["identity"],
        "evaluation.json",
    )
    require_same(f"identity of the parts in {config}", parts.name, training["identity"], config)
    require_same(
        f"stretches in {config}",
        training_record["stretches"],
        training["stretches"],
        "evaluation.json",
    )
    if differs := describe_changes(_hash_train_code(evidence), parts.code):
        raise Mismatch(f"the weights were trained by other code than the record's: {differs}")
    require_same(f"data in {config}", parts.data, evidence.provenance.get("train_fingerprint"),
         "provenance.json")  # fmt: skip
    if is_script_training(evidence):
        _check_script(evidence, parts)
    else:
        _check_settings(evidence, parts)
        check_parts(evidence, parts)
    return f"{len(parts.code)} files of code, {len(parts.settings)} settings"


def _check_settings(evidence: Evidence, parts: Parts) -> None:
    """Check the training's settings against the recipe's; only the parameter MaxSteps and searched
    hyperparameters may differ.
    """
    uri = evidence.find_job_inputs("Gate")["provenance"]["S3Uri"]
    recipe = evidence.read_json(f"{uri.rstrip('/')}/recipe.json")
    loop = recipe["train"]["loop"]
    shares = list_identity_shares(Data.model_validate(recipe["data"]).mixture)
    require_same("mixture of the training", parts.mixture, shares, "recipe.json")
    expected_settings = (
        loop | {"max_steps": parts.settings["max_steps"]} | _find_searched(recipe, parts.settings)
    )
    if expected_settings["precision"] == "auto":  # the job chose it for its machines
        expected_settings["precision"] = parts.settings["precision"]
    for name, value in parts.settings.items():
        require_same(f"{name} of the training", value, expected_settings.get(name), "recipe.json")
    own_settings = as_hyperparameters(parts.workload_config)
    searched_values = _find_searched(recipe, own_settings)
    for name in (
        name for name in (recipe.get("tune") or {}).get("ranges", ()) if name in own_settings
    ):
        require_same(
            f"{name} of the training",
            own_settings[name],
            searched_values.get(name),
            "the range in recipe.json",
        )


def _find_searched(recipe: dict[str, Any], hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that the recipe searches and whose values are in its ranges."""
    if not recipe.get("tune"):
        return {}
    tune = TuneConfig.model_validate(recipe["tune"])
    return {name: hyperparameters[name] for name in tune.ranges
            if name in hyperparameters and tune.allows(name, hyperparameters[name])}  # fmt: skip


def read_description(evidence: Evidence) -> dict[str, Any]:
    """Return the artifact's description of the model: config.json, or a script's trainyard.json."""
    config = DESCRIPTION if is_script_training(evidence) else CONFIG
    return json.loads(evidence.read_model_file(config))


def _check_script(evidence: Evidence, parts: Parts) -> None:
    """Check the parts of the script's training against the recipe and the job."""
    train = evidence.recipe["train"]
    searched_values = _find_searched(evidence.recipe, parts.settings["arguments"])
    expected_settings = {**train, "arguments": train["arguments"] | searched_values}
    for name in ("arguments", "channels", "file_systems", "launcher"):
        require_same(
            f"{name} of the training",
            parts.settings.get(name),
            expected_settings.get(name),
            "recipe.json",
        )
    require_same(
        "image of the training",
        parts.settings["image"],
        evidence.read_job("Train")["AlgorithmSpecification"]["TrainingImage"],
        "its job",
    )


def is_script_training(evidence: Evidence) -> bool:
    """Return whether the model was trained by a user's own script."""
    return evidence.provenance["workload"] == NAME


def _hash_train_code(evidence: Evidence) -> dict[str, str]:
    """Return the SHA-256 of each file of step Train's code that affects the weights, by name."""
    for uri in evidence.provenance["code"]["Train"]:
        files = evidence.read_folder(uri)
        if is_script_training(evidence):
            # All files of the script's folder count. The other folder has AWS's drivers.
            if DRIVERS not in files:
                return {name: sha256(content).hexdigest() for name, content in files.items()}
        elif JOB in files:
            return hash_relevant_code(files, str(evidence.provenance["workload"]))
    raise Mismatch(f"no folder of step Train's code in S3 holds {JOB}, or a script")


def check_base_model(evidence: Evidence) -> str:
    """Check that evaluation, record and customer metadata name the recipe's base model."""
    section, base = evidence.recipe["train"].get("start_from"), _read_base(evidence)
    start = StartFrom.model_validate(section) if section else None
    if start is None or start.checkpoint:
        require_same("the base", base, None, "recipe.json")
        return "the training started from no model"
    if base is None:  # its hash is still part of the training's identity
        raise UncheckedError("evaluation.json names no base: an older version wrote it")
    require_same("the base", evidence.provenance.get("base"), base, "evaluation.json")
    require_same("the base's URI", base["uri"], start.uri or base["uri"], "recipe.json")
    require_same("the base's package", base["model_package"], start.model_package, "recipe.json")
    if start.model_sha256:
        require_same("SHA-256 of the base", base["sha256"], start.model_sha256, "recipe.json")
    require_same("customer metadata base_sha256", evidence.metadata.get("base_sha256", "missing"),
         base["sha256"], "evaluation.json")  # fmt: skip
    require_same("customer metadata base", evidence.metadata.get(BASE, "missing"),
         base["model_package"] or base["uri"], "evaluation.json")  # fmt: skip
    return f"{base['sha256'][:HASH_CHARACTERS]}, {base['model_package'] or base['uri']}"


def check_base_unchanged(evidence: Evidence) -> str:
    """Check that the base model in S3 still has the recorded hash."""
    base = _read_base(evidence)
    if base is None:
        return "the training started from no model"
    try:
        now = _hash_model(evidence, base["uri"])
    except Absent as error:
        raise UncheckedError(f"{error}: only packages with just adapters need this base") from None
    require_same(f"SHA-256 of {base['uri']}", now, base["sha256"], "evaluation.json")
    return f"{now[:HASH_CHARACTERS]}, {base['uri']}"


def check_parts(evidence: Evidence, parts: Parts) -> None:
    """Check that, by its own record, the training used the recipe's adapters and base model.

    Raises:
        Mismatch: the training used others.
    """
    train, base = evidence.recipe["train"], _read_base(evidence)
    tuning = Tuning(adapters=train.get("adapters"), freeze=train.get("freeze") or ())
    require_same("tuning of the training", parts.tuning, tuning.part, "recipe.json")
    start = parts.start or {}
    sha256 = start.get("hugging_face") or start.get("model")
    if base is not None:
        require_same("SHA-256 of the training's start", sha256, base["sha256"], "evaluation.json")


def _read_base(evidence: Evidence) -> Any:
    """Return evaluation.json's entry about the base model; None if it has none."""
    return evidence.read_json(evidence.find_source("Statistics")["S3Uri"])["model"].get(BASE)


def _hash_model(evidence: Evidence, uri: str) -> str:
    """Return the hash of a model in S3, computed as
    ``training.weights.finetuning.base_model.sha256``.
    """
    if uri.endswith(ARCHIVE):
        return evidence.hash_object(uri)
    sizes = evidence.list_objects(uri)
    if {*TRAINYARD_FILES} & {*sizes}:
        return combine_file_hashes({name: evidence.hash_object(f"{uri}{name}") for name in sizes})
    index = (
        evidence.read(f"{uri}{hugging_face_folder.INDEX}")
        if hugging_face_folder.INDEX in sizes
        else None
    )
    try:
        names = hugging_face_folder.select_files(json.loads(index) if index else None, [*sizes])
    except (ValueError, DataError) as error:
        raise Mismatch(f"{uri}: {error}") from None
    return combine_file_hashes({name: evidence.hash_object(f"{uri}{name}") for name in names})
