"""Run all checks of a model package in order, and collect their findings."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from conditions.gate_documents import build_model_metadata, format_record
from pipelines.recipe.sections import parse_account
from pipelines.registry import recompute, record_checks, training_checks
from pipelines.registry.champion import FILE, OF_SERVICE, SHA256, PromotedEvidence, open_evidence
from pipelines.registry.champion import build_package_request as promoted_request
from pipelines.registry.package_evidence import THREADS, Absent, Evidence
from pipelines.registry.record_checks import (
    HASH_CHARACTERS,
    Mismatch,
    UncheckedError,
    describe_difference,
    require_same,
)
from pipelines.registry.training_checks import DESCRIPTION
from steps.shard.shard_plan import SPLITS
from trainyard.common.errors import DataError, ServiceError
from trainyard.common.hashes import combine_file_hashes, hash_json
from trainyard.language.definition_document import locate_property_file
from trainyard.language.evaluation import evaluate_value, extract_json_value, parse_arn_variables
from trainyard.language.expressions import ExpressionError, Value, look_up_path

# Check the data behind a model: datasets, channels of scripts, and the content of their files.

if TYPE_CHECKING:
    from training.data.merged_manifests import MergedManifests  # imports pyarrow and numpy

SUMMARY = ("examples", "sample")
"""Tables of the train split's summary (``steps.shard.split_summary``)."""


def make_split_check(name: str, *, deep: bool) -> Callable[[Evidence], str]:
    """Return a check of the split ``train`` or ``test``: its fingerprint and its files' sizes.

    ``deep``: whether it also hashes every byte.
    """

    def check(evidence: Evidence) -> str:
        """Check the split; return the start of its fingerprint and its number of files."""
        if is_script_evaluation(evidence):
            script_check = {"train": check_training_data, "test": check_test_data}[name]
            return script_check(evidence, deep=deep)
        inputs = evidence.find_job_inputs("Evaluate")
        has_summary = name == "train" and "summary" in inputs
        uri = (
            evidence.find_output_uri("Shard", name)
            if has_summary
            else inputs.get(name, {}).get("S3Uri", "")
        )
        merged_manifests = _merge_manifests(evidence, uri)
        fingerprint = evidence.provenance.get(f"{name}_fingerprint")
        require_same(
            f"fingerprint of the {name} split",
            merged_manifests.fingerprint,
            fingerprint,
            "provenance.json",
        )
        names = _check_files(evidence, uri, merged_manifests, deep)
        manifests = _list_manifests(evidence, uri)
        require_only(evidence, uri, {*names, *manifests})
        require_same(
            f"SHA-256 of the manifests of the {name} split",
            _hash_files(evidence, uri, manifests),
            evidence.provenance.get(f"{name}_manifests_sha256"),
            "provenance.json",
        )
        if has_summary:
            _check_summary(evidence, inputs["summary"]["S3Uri"], deep)
        return f"{merged_manifests.fingerprint[:HASH_CHARACTERS]}, {len(names)} files" + (
            ", every byte" if deep else ""
        )

    return check


def find_dataset_faults(evidence: Evidence, uri: str) -> Iterator[str]:
    """Yield the faults of the dataset that another engine wrote at ``uri``.

    This compares its manifests with each other and with the sizes of its files.

    Raises:
        ServiceError: S3 refused, or could not be reached.
    """
    samples: dict[str, str] = {}
    for name in SPLITS:
        folder = f"{uri.rstrip('/')}/{name}"
        try:
            merged = _merge_manifests(evidence, folder)
            require_same("split", merged.split, name, "its folder")
            _check_files(evidence, folder, merged, deep=False)
        except Mismatch as error:
            yield str(error)
            continue
        if not len(merged.files):
            yield f"{folder}: has no samples; write some, since the pipeline needs every split"
        fields = ", ".join(f"{n} {f.dtype} {f.shape}" for n, f in merged.fields.items())
        samples[name] = f"{fields}, made for {dict(merged.workload)}"
    if len(set(samples.values())) > 1:
        yield f"{uri}: the splits' samples differ: {samples}; write them with the same fields"


def _merge_manifests(evidence: Evidence, uri: str) -> "MergedManifests":
    """Return the merged manifests of a split; raise Mismatch if they do not fit each other."""
    from training.data.manifest_columns import parse_manifest
    from training.data.merged_manifests import merge_manifests

    names = _list_manifests(evidence, uri)
    try:
        manifests = {n: parse_manifest(f"{uri}/{n}", evidence.read(f"{uri}/{n}")) for n in names}
        return merge_manifests(uri, manifests)
    except DataError as error:
        raise Mismatch(str(error)) from None


def _list_manifests(evidence: Evidence, uri: str) -> list[str]:
    """Return the names of the manifests in the folder."""
    return [
        n for n in evidence.list_objects(uri) if n.startswith("manifest-") and n.endswith(".json")
    ]


def _hash_files(evidence: Evidence, uri: str, names: Iterable[str]) -> str:
    """Return the hash over the names of these files and their SHA-256."""
    return combine_file_hashes(
        {n: hashlib.sha256(evidence.read(f"{uri}/{n}")).hexdigest() for n in names}
    )


def _check_summary(evidence: Evidence, uri: str, deep: bool) -> None:
    """Check the summary of the train split, which the evaluation read instead of the samples."""
    folders = ("", *(f"{table}/" for table in SUMMARY))
    manifests = sorted(
        f"{folder}{n}" for folder in folders for n in _list_manifests(evidence, f"{uri}/{folder}")
    )
    require_same("SHA-256 of the manifests of the summary of the train split",
         _hash_files(evidence, uri, manifests),
         evidence.provenance.get("summary_manifests_sha256"), "provenance.json")  # fmt: skip
    names = set(manifests)
    for table in SUMMARY:
        folder = f"{uri}/{table}"
        files = _check_files(evidence, folder, _merge_manifests(evidence, folder), deep)
        names |= {f"{table}/{file}" for file in files}
    require_only(evidence, uri, names)


def _check_files(
    evidence: Evidence, uri: str, merged_manifests: "MergedManifests", deep: bool
) -> list[str]:
    """Check that each file in the manifests exists and has its size; ``deep``: and its SHA-256.

    Return the names of these files.
    """
    from training.data.verify import list_files

    object_sizes, names = evidence.list_objects(uri), list_files(merged_manifests)
    for name, size, sha256 in names:
        require_same(
            f"size of shard {uri}/{name}", object_sizes.get(name, "missing"), size, "its manifest"
        )
        if deep:
            digest = evidence.hash_object(f"{uri}/{name}")
            require_same(f"SHA-256 of shard {uri}/{name}", digest, sha256, "its manifest")
    return [name for name, _, _ in names]


TRAIN = "train"
"""Channel of the evaluation that is not tested on (``steps.evaluate.script_evaluation``)."""


def is_script_evaluation(evidence: Evidence) -> bool:
    """Return whether the model was evaluated by a user's own script."""
    return "channels" in evidence.read_json(evidence.find_source("Statistics")["S3Uri"]).get(
        "dataset", {}
    )


def check_test_data(evidence: Evidence, *, deep: bool) -> str:
    """Check a script's test data: number and size of files; ``deep``: also hashes."""
    channels = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])["dataset"][
        "channels"
    ]
    channels = {name: channel for name, channel in channels.items() if name != TRAIN}
    uris = {name: source["S3Uri"] for name, source in evidence.find_job_inputs("Evaluate").items()}
    return _check_channels(evidence, "test", channels, uris, deep)


def check_training_data(evidence: Evidence, *, deep: bool) -> str:
    """Check that a script's training data is unchanged, as ``check_test_data`` does.

    A file system that mirrors the bucket is checked in the shard step's output.
    """
    body = evidence.read_model_file(DESCRIPTION)
    job_channels = evidence.read_job("Train").get("InputDataConfig", ())
    sources = {channel["ChannelName"]: channel["DataSource"] for channel in job_channels}
    uris = {
        name: source["S3DataSource"]["S3Uri"]
        for name, source in sources.items()
        if "S3DataSource" in source
    }
    for name, source in sources.items():
        system = source.get("FileSystemDataSource")
        # A file system that mirrors the bucket: its files are in the output of the shard step.
        if system and system["DirectoryPath"].endswith(f"/shard/{name}"):
            uris[name] = evidence.find_output_uri("Shard", name)
    return _check_channels(evidence, "train", json.loads(body)["channels"], uris, deep)


def _check_channels(
    evidence: Evidence,
    split: str,
    channels: Mapping[str, Mapping[str, Any]],
    uris: Mapping[str, str],
    deep: bool,
) -> str:
    """Check the channels of a split against the record and S3; return a finding."""
    fingerprint = hash_json({name: channel["sha256"] for name, channel in channels.items()})
    require_same(f"fingerprint of the {split} data", fingerprint,
         evidence.provenance.get(f"{split}_fingerprint"), "provenance.json")  # fmt: skip
    if missing := sorted(channels.keys() - uris.keys()):
        raise UncheckedError(f"channel {missing[0]} was not read from an S3 prefix")
    files = 0
    for name, channel in channels.items():
        files += _check_channel(evidence, f"channel {name}", uris[name], channel, deep)
    return f"{fingerprint[:HASH_CHARACTERS]}, {files} files" + (", every byte" if deep else "")


def _check_channel(
    evidence: Evidence, label: str, uri: str, channel_record: Mapping[str, Any], deep: bool
) -> int:
    """Check a channel's files, size and hash against its record; return its number of files."""
    objects = evidence.list_input_objects(uri)
    require_same(
        f"number of files of {label} ({uri})", len(objects), channel_record["files"], "its job"
    )
    require_same(
        f"bytes of {label} ({uri})",
        sum(size for _, size in objects.values()),
        channel_record["bytes"],
        "its job",
    )
    # Of a streamed channel, only names and sizes of the files are recorded.
    read = channel_record.get("contents", True)
    # Without contents, the hash is computed even if not ``deep``: it needs only the listing.
    if deep or not read:
        contents = {
            name: [size, evidence.hash_object(object_uri)] if read else [size]
            for name, (object_uri, size) in objects.items()
        }
        require_same(
            f"SHA-256 of {label} ({uri})", hash_json(contents), channel_record["sha256"], "its job"
        )
    return len(objects)


def check_artifact_bytes(evidence: Evidence) -> str:
    """Check every byte of the model, and that no other object's URI begins with the artifact's."""
    uri = evidence.model
    extra_names = [] if uri.endswith("/") else sorted(set(evidence.list_with_prefix(uri)) - {""})
    if extra_names:
        raise Mismatch(
            f"{uri}{extra_names[0]} begins with the artifact's URI, but is not in the record"
        )
    digest = evidence.hash_model()
    require_same("SHA-256 of the artifact", digest, evidence.provenance.get("artifact_sha256"),
         "provenance.json")  # fmt: skip
    return digest[:HASH_CHARACTERS]


def check_scores(evidence: Evidence) -> str:
    """Check that gate and evaluation.json used these tables of scores."""
    recorded_hashes = evidence.provenance["scores_sha256"]
    tables = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])["scores"]
    folder = evidence.find_output_uri("Evaluate", "scores")
    require_only(evidence, folder, recorded_hashes)
    for name, expected_sha256 in recorded_hashes.items():
        require_same(
            f"SHA-256 of {name} in evaluation.json",
            tables[name]["sha256"],
            expected_sha256,
            "provenance.json",
        )
        require_same(
            f"SHA-256 of {name}",
            evidence.hash_object(f"{folder}/{name}"),
            expected_sha256,
            "provenance.json",
        )
    return ", ".join(
        f"{name} {digest[:HASH_CHARACTERS]}" for name, digest in recorded_hashes.items()
    )


def check_outputs(evidence: Evidence) -> str:
    """Check that the evaluation's output has only evaluation.json, and the gate's only its three
    files.
    """
    require_only(evidence, evidence.find_output_uri("Evaluate", "evaluation"), ("evaluation.json",))
    gate = evidence.find_output_uri("Gate", "gate")
    require_only(evidence, gate, ("gate.json", "provenance.json", "record.json"))
    expected_text = format_record(
        build_model_metadata(evidence.provenance, evidence.metadata["provenance_sha256"])
    )
    if evidence.read(f"{gate}/record.json") != expected_text.encode():
        raise Mismatch("record.json does not follow from provenance.json")
    return "4 files"


def require_only(evidence: Evidence, folder: str, names: Collection[str]) -> None:
    """Check that exactly the files ``names`` are in ``folder``.

    Raises:
        Mismatch: a file is missing, or there are others.
    """
    listing = set(evidence.list_objects(folder))
    for name in sorted({*names} ^ listing):
        problem = "is not part of the record" if name in listing else "is missing"
        raise Mismatch(f"{folder}/{name} {problem}")


# A package can be edited by anyone who may update it. The execution cannot be edited: the service
# keeps its definition, parameters and jobs, and which package its step registered. So the request
# is built again from these, and compared with the package field by field.


BY_SERVICE = (
    *("ModelPackageName", "ModelPackageVersion", "ModelPackageArn", "CreationTime", "CreatedBy"),
    *("ModelPackageStatus", "ModelPackageStatusDetails", "LastModifiedTime", "LastModifiedBy"),
    *("CertifyForMarketplace", "SkipModelValidation", "MetadataProperties", "ManagedStorageType"),
    *("ResponseMetadata", "Tags", "ModelPackageRegistrationType"),
)
"""Fields of DescribeModelPackage's response that the service fills in."""
BY_PEOPLE = ("ModelApprovalStatus", "ApprovalDescription")
"""Fields that record an approval."""


def check_execution(evidence: Evidence) -> str:
    """Check that the execution that the package names registered exactly this package."""
    arn = evidence.metadata["execution"]
    package_arns = [
        body["Arn"]
        for step in evidence.steps.values()
        for kind, body in step.metadata.items()
        if kind == "RegisterModel"
    ]
    if evidence.package["ModelPackageArn"] not in package_arns:
        raise Mismatch(
            f"{arn} has registered {', '.join(package_arns) or 'nothing'}, not this package"
        )
    return arn.rpartition("/")[2]


def check_registration_request(evidence: Evidence) -> str:
    """Check that the package's fields are exactly those in the execution's registration request."""
    [step] = [s for s in evidence.definition_steps.values() if s["Type"] == "RegisterModel"]
    try:
        step_request = evaluate_value(step["Arguments"], FinishedRun(evidence))
    except ExpressionError as error:
        raise Mismatch(
            f"the request of step {step['Name']} cannot be built again: {error}"
        ) from None
    actual, reference = (
        select_comparable_fields(evidence.package),
        select_comparable_fields(step_request),
    )
    if mismatch := describe_difference(reference, actual):
        raise Mismatch(f"package and request differ: {mismatch}; the latter is the run's request")
    return f"{len(reference)} fields"


def select_comparable_fields(package: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a package that its registration sets, with model cards parsed."""
    kept_fields = {k: v for k, v in package.items() if k not in (*BY_SERVICE, *BY_PEOPLE)}
    document = json.loads(json.dumps(kept_fields, default=str))
    # A request may give the group's ARN; the description has its name.
    if group := document.get("ModelPackageGroupName"):
        document["ModelPackageGroupName"] = group.rpartition("/")[2]
    for container in document.get("InferenceSpecification", {}).get("Containers", ()):
        for name in OF_SERVICE:
            container.pop(name, None)
    if isinstance(card := document.get("ModelCard"), dict):
        card["ModelCardContent"] = json.loads(card["ModelCardContent"])
    return document


def check_promotion(evidence: PromotedEvidence) -> str:
    """Check that a promoted package is what its record says, and that it names the record.

    Every other check then reads the record, and the copies in its folder.
    """
    digest = hashlib.sha256(evidence.read(evidence.uri)).hexdigest()
    require_same(f"SHA-256 of {FILE}", digest, evidence.promotion.get(SHA256), "the package")
    package = evidence.registered_package
    promotion_request = promoted_request(
        evidence.record, evidence.folder_uri, digest, package["ModelPackageGroupName"]
    )
    if mismatch := describe_difference(
        select_comparable_fields(promotion_request), select_comparable_fields(package)
    ):
        raise Mismatch(
            f"package and request differ: {mismatch}; the latter is the promotion's request"
        )
    hops = evidence.record.hops
    require_same(
        "account of the last promotion",
        hops[-1].account,
        parse_account(evidence.arn),
        "the package",
    )
    return " → ".join([parse_account(evidence.record.origin["ModelPackageArn"]) or "",
                       *(hop.account for hop in hops)])  # fmt: skip


def check_copies(evidence: PromotedEvidence) -> str:
    """Check every byte of the objects that a promotion copied."""
    recorded_hashes = evidence.record.objects
    with ThreadPoolExecutor(THREADS) as pool:
        digests = pool.map(
            # An object that an earlier check has read to the end is not read again.
            lambda uri: evidence.read_hashes.get(uri) or evidence.hash_object(uri),
            recorded_hashes,
        )
        for (uri, expected_sha256), digest in zip(recorded_hashes.items(), digests, strict=True):
            require_same(f"SHA-256 of the copy of {uri}", digest, expected_sha256, FILE)
    return f"{len(recorded_hashes)} objects"


class FinishedRun:
    """Values of a finished execution: a :class:`trainyard.language.evaluation.Scope`."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def parameter(self, name: str) -> Value:
        """Return the parameter's value in this execution."""
        parameters = self._evidence.parameters
        if name not in parameters:
            raise ExpressionError(f"parameter {name!r} does not exist")
        return parameters[name]

    def variable(self, name: str) -> str:
        """Return a variable that names the execution; raise ExpressionError for its times."""
        variables = parse_arn_variables(self._evidence.metadata["execution"])
        if name not in variables:
            raise ExpressionError(f"Execution.{name} is not known after the run")
        return variables[name]

    def property(self, step: str, path: str) -> Any:
        """Return a value in the service's description of the step's job."""
        try:
            return look_up_path(self._evidence.read_job(step), path, f"Get 'Steps.{step}.{path}'")
        except Absent as error:
            raise ExpressionError(str(error)) from None

    def property_file(self, step: str, name: str, path: str) -> Any:
        """Return the value at ``path`` in the property file, as it is now."""
        folder, file = locate_property_file(self._evidence.definition_steps[step], name)
        return self.s3_file(f"{self.property(step, folder)}/{file}", path)

    def s3_file(self, uri: str, path: str) -> Any:
        """Return the value at ``path`` in the S3 object, as it is now."""
        try:
            return extract_json_value(self._evidence.read(uri), path, uri)
        except Absent as error:
            raise ExpressionError(str(error)) from None


CHECKOUT = Path(__file__).resolve().parent.parent.parent
FOUNDATION = ("promotion", "package", "provenance")
"""If one of these checks fails, all others have nothing to compare with, and are not run."""

Check = Callable[[Evidence], str]
QUICK: Mapping[str, Check] = {
    "package": record_checks.check_package,
    "provenance": record_checks.check_provenance,
    "execution": check_execution,
    "evaluation": record_checks.check_evaluation,
    "gate": record_checks.check_gate,
    "customer metadata": record_checks.check_metadata,
    "metrics": record_checks.check_metrics,
    "artifact": record_checks.check_artifact_location,
    "definition": record_checks.check_definition,
    "definition's record": record_checks.check_origin,
    "demands": record_checks.check_gate_arguments,
    "record": check_outputs,
    "registration": check_registration_request,
    "code": record_checks.check_code,
    "training": training_checks.check_history,
    "base": training_checks.check_base_model,
}
"""Checks that need only a few small reads, in the order of trust."""
BYTES: Mapping[str, Check] = {
    "artifact's bytes": check_artifact_bytes,
    "artifact's training": training_checks.check_artifact,
    "base's bytes": training_checks.check_base_unchanged,
    "scores": check_scores,
}
"""Checks of every byte to be deployed, and of everything on which the verdict is based."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    name: str
    status: Literal["ok", "mismatch", "unchecked"]
    detail: str


def verify(
    arn: str, checkout: Path | None = None, *, quick: bool = False, deep: bool = False
) -> list[Finding]:
    """Check the package ``arn``, in the order of trust: the first mismatch is the one to look at.

    Args:
        checkout: the checkout to compare code and recipe with; None for the current one, whose
            commit may differ without being a mismatch.
        quick: run only checks that need a few small reads.
        deep: also hash every byte of the dataset.

    Raises:
        ServiceError: the package does not exist, or AWS cannot be reached.
    """
    evidence = open_evidence(arn)
    checks = choose_checks(checkout, quick=quick, deep=deep)
    return list(run_checks(evidence, select_checks(evidence, checks)))


def choose_checks(checkout: Path | None, *, quick: bool, deep: bool) -> Mapping[str, Check]:
    """Return the checks that ``verify`` runs, in their order."""
    if quick:
        return QUICK
    splits = {f"{name} split": make_split_check(name, deep=deep) for name in ("train", "test")}
    local = recompute.list_checks((checkout or CHECKOUT).resolve(), is_named=checkout is not None)
    return {**QUICK, **BYTES, **splits, **local}


def run_approval_checks(evidence: Evidence, *, deep: bool = False) -> Iterator[Finding]:
    """Run the checks for an approval: every byte of the artifact, the evidence and the test split.

    Of the train split, which is not read again, only the manifests and every file's name and size
    are checked; ``deep``: also every byte. Of a promoted package, every byte of its copies is
    checked.
    """
    splits = {
        "test split": make_split_check("test", deep=True),
        "train split": make_split_check("train", deep=deep),
    }
    return run_checks(evidence, select_checks(evidence, {**QUICK, **BYTES, **splits}))


def select_checks(evidence: Evidence, checks: Mapping[str, Check]) -> Mapping[str, Check]:
    """Return the checks that apply to the evidence.

    The data of a promoted package stays in the account of origin. So its splits are not checked.
    Instead, the promotion's record is checked first, and all copies are checked last if every byte
    of the model is.
    """
    if not isinstance(evidence, PromotedEvidence):
        return checks
    kept_checks = {name: check for name, check in checks.items() if not name.endswith(" split")}
    # Quick checks, which read no byte of the model, read no copies either.
    copy_checks = (
        {"copies": lambda _: check_copies(evidence)} if BYTES.keys() <= kept_checks.keys() else {}
    )
    return {"promotion": lambda _: check_promotion(evidence), **kept_checks, **copy_checks}


def run_checks(evidence: Evidence, checks: Mapping[str, Check]) -> Iterator[Finding]:
    """Run the checks in order; if a check in FOUNDATION fails, the later ones are unchecked."""
    missing = ""
    for name, check in checks.items():
        if missing:
            yield Finding(name, "unchecked", f"rests on {missing}")
            continue
        finding = _run_check(evidence, name, check)
        if name in FOUNDATION and finding.status != "ok":
            missing = name
        yield finding


def _run_check(evidence: Evidence, name: str, check: Check) -> Finding:
    """Run one check; if something is missing or malformed, that is a mismatch."""
    try:
        return Finding(name, "ok", check(evidence))
    except UncheckedError as error:
        return Finding(name, "unchecked", str(error))
    except (Mismatch, Absent, ServiceError) as error:
        return Finding(name, "mismatch", str(error))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        return Finding(name, "mismatch", f"is malformed: {error!r}")


def find_first_mismatch(findings: Iterable[Finding]) -> Finding | None:
    """Return the first mismatch; None if there is none."""
    return next((finding for finding in findings if finding.status == "mismatch"), None)
