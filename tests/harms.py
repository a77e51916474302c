"""Ways to harm a registered package, and what says that it was harmed."""

import contextlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator

from pipelines.registry import recompute
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.verification import BYTES, QUICK, Finding, first_mismatch, run_checks, split
from tests.registered import GROUP, Registered, first, git, run_folder
from training.identity import Parts


def object_edited(uri: Callable[[Registered], str], edit: Callable[[bytes], bytes]):
    """A tampering: the object's bytes go through ``edit``."""

    @contextlib.contextmanager
    def tampered(registered: Registered) -> Iterator[None]:
        where = uri(registered)
        before = registered.read(where)
        registered.write(where, edit(before))
        yield
        registered.write(where, before)

    return tampered


def package_edited(edit: Callable[[dict], dict]):
    """A tampering: UpdateModelPackage with what ``edit`` makes of the package."""

    @contextlib.contextmanager
    def tampered(registered: Registered) -> Iterator[None]:
        package = registered.package
        changes = edit(package)
        update = registered.client("sagemaker").update_model_package
        update(ModelPackageArn=registered.arn, **changes)
        yield
        update(ModelPackageArn=registered.arn, **{name: package[name] for name in changes})

    return tampered


@contextlib.contextmanager
def definition_replaced(registered: Registered) -> Iterator[None]:
    execution = registered.metadata["execution"].rpartition("/")[2]
    path = registered.state / "executions" / execution / "definition.json"
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"MaxRuntimeInSeconds": 3600', b'"MaxRuntimeInSeconds": 3601'))
    assert path.read_bytes() != before
    yield
    path.write_bytes(before)


@contextlib.contextmanager
def recipe_edited(registered: Registered) -> Iterator[None]:
    path = registered.checkout / "recipes/laptop.yaml"
    before = path.read_text()
    path.write_text(before.replace("learning_rate: 0.005", "learning_rate: 0.006"))
    yield
    path.write_text(before)


@contextlib.contextmanager
def other_commit(registered: Registered) -> Iterator[None]:
    git(registered.checkout, "commit", "-q", "--allow-empty", "-m", "another")
    yield
    git(registered.checkout, "reset", "-q", "--hard", "HEAD^")


def flipped(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


def code_uri(registered: Registered) -> str:
    record = json.loads(registered.read(registered.metadata["provenance_uri"]))
    return first(registered, next(iter(record["code"]["Evaluate"])), "evaluate/job.py")


def record_uri(registered: Registered) -> str:
    return Evidence(registered.arn).job_inputs("Gate")["provenance"]["S3Uri"] + "provenance.json"


def renamed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def edit(body: bytes) -> bytes:
        assert old in body
        return body.replace(old, new, 1)

    return edit


def metadata_set(**values: str):
    def edit(package: dict) -> dict:
        return {"CustomerMetadataProperties": package["CustomerMetadataProperties"] | values}

    return package_edited(edit)


def pointing_elsewhere(package: dict) -> dict:
    text = json.dumps(package["InferenceSpecification"])
    return {"InferenceSpecification": json.loads(text.replace("model.tar.gz", "other.tar.gz"))}


def card_edited(package: dict) -> dict:
    content = json.loads(package["ModelCard"]["ModelCardContent"])
    content["evaluation_details"][0]["metric_groups"][0]["metric_data"][0]["value"] = 0.5
    return {"ModelCard": package["ModelCard"] | {"ModelCardContent": json.dumps(content)}}


TAMPERINGS = {
    "artifact byte flipped": (object_edited(lambda r: r.model_uri, flipped), "artifact's bytes"),
    "artifact truncated": (object_edited(lambda r: r.model_uri, lambda b: b[:-1]), "artifact"),
    "shard replaced": (
        object_edited(lambda r: first(r, run_folder(r, "shard/test"), ".npy"), flipped),
        "test split",
    ),
    "manifest edited": (
        object_edited(
            lambda r: first(r, run_folder(r, "shard/train"), ".json"),
            renamed(b'"vocabulary": 257', b'"vocabulary": 258'),
        ),
        "train split",
    ),
    "recipe edited": (recipe_edited, "recipe"),
    "metrics edited": (
        object_edited(lambda r: r.evaluation_uri, renamed(b'"value": ', b'"value": 0')),
        "evaluation",
    ),
    "gate.json edited": (
        object_edited(lambda r: r.gate_uri, renamed(b'"threshold": 8.5', b'"threshold": 9.5')),
        "gate",
    ),
    "provenance.json edited": (
        object_edited(lambda r: r.metadata["provenance_uri"], renamed(b'"seed": 0', b'"seed": 1')),
        "provenance",
    ),
    "customer metadata: metric": (metadata_set(bits_per_byte="1.5"), "metrics"),
    "customer metadata: commit": (metadata_set(commit="f" * 40), "customer metadata"),
    "customer metadata: record's hash": (metadata_set(provenance_sha256="0" * 64), "provenance"),
    "customer metadata: execution": (
        metadata_set(
            execution=f"arn:aws:sagemaker:us-east-1:123456789012:pipeline/{GROUP}/execution/x"
        ),
        "execution",
    ),
    "model card edited": (package_edited(card_edited), "metrics"),
    "code changed": (object_edited(code_uri, lambda body: body + b"\n# changed"), "code"),
    "definition replaced": (definition_replaced, "definition"),
    "definition's record edited": (
        object_edited(record_uri, renamed(b'"seed": 0', b'"seed": 1')),
        "definition's record",
    ),
    "ModelDataUrl points elsewhere": (package_edited(pointing_elsewhere), "artifact"),
    "other commit": (other_commit, "commit"),
}


def trained_by_other_code(evaluation: dict) -> None:
    evaluation["model"]["training"]["stretches"][0]["code_sha256"] = "0" * 64


def begun_elsewhere(evaluation: dict) -> None:
    [stretch] = evaluation["model"]["training"]["stretches"]
    other = stretch | {"identity": "0" * 16}
    evaluation["model"]["training"]["stretches"] = [other, stretch | {"since": 2}]


def described_otherwise(edit: Callable[[dict], None]) -> Callable[[bytes], bytes]:
    """The archive with what ``edit`` makes of its config.json's ``training``."""

    def edited(body: bytes) -> bytes:
        made = io.BytesIO()
        with (
            tarfile.open(fileobj=io.BytesIO(body)) as old,
            tarfile.open(fileobj=made, mode="w:gz") as new,
        ):
            for entry in old:
                content = old.extractfile(entry).read()
                if entry.name == "config.json":
                    config = json.loads(content)
                    edit(config["training"])
                    content = json.dumps(config).encode()
                    entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
        return made.getvalue()

    return edited


def of_other_code(training: dict) -> None:
    training["parts"]["code"]["training/loop.py"] = "0" * 64


def renamed_too(training: dict) -> None:
    of_other_code(training)
    training["identity"] = Parts.model_validate(training["parts"]).name


def made_elsewhere(training: dict) -> None:
    training["stretches"][0]["world_size"] += 1


@contextlib.contextmanager
def loss_changed(registered: Registered) -> Iterator[None]:
    """A user's edit of the loss, which nothing else in the run notices."""
    path = registered.checkout / "training/workloads/language_model/workload.py"
    before = path.read_text()
    old = 'reduction="sum"'
    assert before.count(old) == 1
    path.write_text(before.replace(old, f"{old}, label_smoothing=0.5"))
    yield
    path.write_text(before)


def first_wrong(registered: Registered) -> Finding | None:
    """By every check but compiling the definition again, which takes seconds and comes last."""
    local = recompute.checks(registered.checkout, is_named=True)
    del local["definition again"]
    data = {f"{name} split": split(name, deep=True) for name in ("train", "test")}
    chosen = {**QUICK, **BYTES, **data, **local}
    return first_mismatch(run_checks(Evidence(registered.arn), chosen))
