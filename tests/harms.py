"""Ways to harm a registered package, and what says that it was harmed."""

import contextlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator

from pipelines.registry import recompute
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.verification import (
    BYTES,
    QUICK,
    Finding,
    find_first_mismatch,
    make_split_check,
    run_checks,
)
from tests.registered import GROUP, Registered, git
from tests.tamperings import files, keys, tamper_target
from training.identity import Parts


def object_edited(uri: Callable[[Registered], str], edit: Callable[[bytes], bytes]):
    """A tampering: the object's bytes go through ``edit``."""

    @contextlib.contextmanager
    def tamper_object(registered: Registered) -> Iterator[None]:
        where = uri(registered)
        before = registered.read(where)
        registered.write(where, edit(before))
        yield
        registered.write(where, before)

    return tamper_object


def package_edited(edit: Callable[[dict], dict]):
    """A tampering: UpdateModelPackage with what ``edit`` makes of the package."""

    @contextlib.contextmanager
    def tamper_package(registered: Registered) -> Iterator[None]:
        package = registered.package
        changes = edit(package)
        update = registered.client("sagemaker").update_model_package
        update(ModelPackageArn=registered.arn, **changes)
        yield
        update(ModelPackageArn=registered.arn, **{name: package[name] for name in changes})

    return tamper_package


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


def metadata_set(**values: str):
    def edit(package: dict) -> dict:
        return {"CustomerMetadataProperties": package["CustomerMetadataProperties"] | values}

    return package_edited(edit)


def card_edited(package: dict) -> dict:
    content = json.loads(package["ModelCard"]["ModelCardContent"])
    content["evaluation_details"][0]["metric_groups"][0]["metric_data"][0]["value"] = 0.5
    return {"ModelCard": package["ModelCard"] | {"ModelCardContent": json.dumps(content)}}


def choose_tampering(part: str, kind: str):
    """A tampering of that kind with the first of what the record covers whose place ends so."""

    @contextlib.contextmanager
    def apply_tampering(registered: Registered) -> Iterator[None]:
        evidence = Evidence(registered.arn)
        place, _, key = part.partition("#")
        target = next(
            one
            for one in (*files(evidence), *keys(evidence))
            if re.search(place, one.where) and (not key or key == one.path[-1])
        )
        with tamper_target(registered.client, registered.arn, target, kind):
            yield

    return apply_tampering


PIPELINE = f"arn:aws:sagemaker:us-east-1:123456789012:pipeline/{GROUP}"
TAMPERINGS = {
    "artifact byte flipped": (choose_tampering("model.tar.gz$", "flipped bit"), "artifact's bytes"),
    "artifact truncated": (choose_tampering("model.tar.gz$", "truncation"), "artifact"),
    "shard replaced": (choose_tampering("/shard/test/.*npy$", "flipped bit"), "test split"),
    "manifest edited": (
        choose_tampering("/shard/train/manifest", "swap of equal length"),
        "train split",
    ),
    "recipe edited": (recipe_edited, "recipe"),
    "metrics edited": (choose_tampering("/evaluation.json$", "flipped bit"), "evaluation"),
    "gate.json edited": (choose_tampering("/gate.json$", "flipped bit"), "gate"),
    "provenance.json edited": (
        choose_tampering("/gate/provenance.json$", "flipped bit"),
        "provenance",
    ),
    "metric": (metadata_set(bits_per_byte="1.5"), "metrics"),
    "commit": (metadata_set(commit="f" * 40), "customer metadata"),
    "record's hash": (metadata_set(provenance_sha256="0" * 64), "provenance"),
    "execution": (metadata_set(execution=f"{PIPELINE}/execution/x"), "execution"),
    "model card edited": (package_edited(card_edited), "metrics"),
    "code changed": (choose_tampering("/code/.*evaluate/job.py$", "truncation"), "code"),
    "definition replaced": (definition_replaced, "definition"),
    "record edited": (
        choose_tampering("(?<!gate)/provenance.json$", "flipped bit"),
        "definition's record",
    ),
    "URL elsewhere": (
        choose_tampering("^InferenceSpecification#ModelDataUrl", "flipped bit"),
        "artifact",
    ),
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

    def edit_archive(body: bytes) -> bytes:
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

    return edit_archive


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
    local = recompute.list_checks(registered.checkout, is_named=True)
    del local["definition again"]
    data = {f"{name} split": make_split_check(name, deep=True) for name in ("train", "test")}
    chosen = {**QUICK, **BYTES, **data, **local}
    return find_first_mismatch(run_checks(Evidence(registered.arn), chosen))
