"""Shard → train → evaluate → gate as SageMaker would chain them, each job in a container's folders.

Once with the shipped workload, once with one of a user's own: the jobs know neither.
"""

import json
import random
import shutil
import tarfile
from pathlib import Path

import pytest

from steps.evaluate import job as evaluate_job
from steps.gate import job as gate_job
from steps.shard.shard_plan import SPLITS
from steps.train import job as train_job
from tests.steps.shard.conftest import instances, lines
from training.workloads import load_spec

pytestmark = pytest.mark.long

TOYS = Path(__file__).parents[1] / "training"
LINES = (
    "the cat sat on the mat and ate the rat. ",
    "that hat is at the heart of the matter. ",
    "other mothers gather another feather. ",
)


def sentences(count: int) -> list[dict]:
    source = random.Random(0)
    return [
        {"key": f"{n}", "text": "".join(source.choice(LINES) for _ in range(5))}
        for n in range(count)
    ]


def lists(count: int) -> list[dict]:
    source = random.Random(0)
    rows = [[place + n % 2 for place in range(source.randint(1, 8))] for n in range(count)]
    return [{"key": f"{n}", "numbers": " ".join(map(str, row))} for n, row in enumerate(rows)]


LANGUAGE = {
    "name": "language_model",
    "config": {"context_length": 32, "layers": 2, "heads": 2, "dim": 48},
    "records": sentences,
    "gate": ["--primary_metric", "bits_per_byte", "--threshold", "max_bits_per_byte", "1.6",
             "--below_baseline", "bigram"],
}  # fmt: skip
RAGGED = {
    "name": "toys.ragged",
    "config": {},
    "records": lists,
    "gate": ["--primary_metric", "loss", "--threshold", "max_loss", "1.5",
             "--below_baseline", "uniform"],
}  # fmt: skip


def shard(root: Path, workload: dict) -> None:
    records = workload["records"](400)
    files = {f"part-{part}.jsonl": lines(records[part::2]) for part in (0, 1)}
    options = ["--summary"] if load_spec(workload["name"]).has_summary else []
    words = [*_make_workload_arguments(workload), "--key", "key", "--processes", "1", *options]
    [container] = instances(root / "shard", files, 1, base=words)
    for split in (*SPLITS, *(["summary"] if options else [])):
        shutil.copytree(container / "processing/output" / split, root / split)


def train(root: Path, workload: dict) -> None:
    for split in ("train", "validation"):
        shutil.copytree(root / split, root / "train-job/input/data" / split)
    settings = {"strategy": "single", "max_steps": 100, "global_batch": 32, "micro_batch": 16,
                "learning_rate": 0.01, "warmup_steps": 10, "precision": "float32"}  # fmt: skip
    loop = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    train_job.main([*_make_workload_arguments(workload), *loop, "--root", str(root / "train-job")])


def evaluate(root: Path, train_split: str = "train") -> dict:
    inputs = root / "evaluate/processing/input"
    for split in (train_split, "test"):
        shutil.copytree(root / split, inputs / split, dirs_exist_ok=True)
    if not (inputs / "model").exists():
        (inputs / "model").mkdir()
        with tarfile.open(inputs / "model/model.tar.gz", "w:gz") as tar:
            tar.add(root / "train-job/model", ".")
    evaluate_job.main(["--root", str(root / "evaluate")])
    return json.loads((root / "evaluate/processing/output/evaluation/evaluation.json").read_bytes())


def gate(root: Path, workload: dict) -> dict:
    output = root / "evaluate/processing/output/evaluation"
    shutil.copytree(output, root / "gate/processing/input/evaluation")
    gate_job.main([*workload["gate"], "--direction", "lower", "--root", str(root / "gate")])
    return json.loads((root / "gate/processing/output/gate/gate.json").read_bytes())


def _make_workload_arguments(workload: dict) -> list[str]:
    settings = json.dumps(workload["config"])
    return ["--workload", workload["name"], "--workload_config", settings]


@pytest.fixture(autouse=True)
def toys(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(TOYS))


@pytest.mark.parametrize(
    "workload",  # the language model's way is the main job's, too
    [pytest.param(LANGUAGE, marks=pytest.mark.sweep), RAGGED],
    ids=["language_model", "own workload"],
)
def test_from_raw_records_to_a_verdict(tmp_path: Path, workload: dict):
    shard(tmp_path, workload)
    train(tmp_path, workload)
    evaluation = evaluate(tmp_path)
    verdict = gate(tmp_path, workload)
    assert verdict["verdict"] == "pass", verdict["reason"]
    assert verdict["dataset_fingerprint"] == evaluation["dataset"]["fingerprint"]
    assert evaluation["model"]["steps"] == 100
    assert evaluation["dataset"]["test_records"] > 5
    told = [*evaluation["metrics"].values(), *evaluation["baselines"].values()]
    assert all(isinstance(number, float) for metrics in told for number in metrics.values())
    if load_spec(workload["name"]).has_summary:
        _check_summary(tmp_path, evaluation)


def _check_summary(root: Path, whole: dict) -> None:
    """The summary of the train split tells an evaluation what the split tells it."""
    shutil.rmtree(root / "evaluate/processing/input/train")
    brief = evaluate(root, "summary")
    assert brief["dataset"].pop("summary_manifests_sha256")
    for told in ("baselines", "dataset", "leakage", "metrics"):
        assert brief[told] == whole[told], told
    assert brief["leakage"]["checked_examples"] > 5


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A trained toy, before its evaluation."""
    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOYS))
        shard(root, RAGGED)
        train(root, RAGGED)
    return root


def read_failure_message(job, arguments: list[str], message_file: Path) -> str:
    with pytest.raises(SystemExit) as end:
        job.main(arguments)
    assert end.value.code == 1
    return message_file.read_text()


def _members(root: Path, member: tarfile.TarInfo, content: Path | None = None) -> None:
    path = root / "evaluate/processing/input/model/model.tar.gz"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as tar:
        member.size = content.stat().st_size if content else 0
        with (content or Path("/dev/null")).open("rb") as file:
            tar.addfile(member, file)


def _link() -> tarfile.TarInfo:
    link = tarfile.TarInfo("config.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return link


def _damage(change):
    """An archive without weights, its bytes changed."""

    def damage(root: Path) -> None:
        _members(root, tarfile.TarInfo("config.json"), root / "train-job/model/config.json")
        path = root / "evaluate/processing/input/model/model.tar.gz"
        path.write_bytes(change(path.read_bytes()))

    return damage


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda root: (root / "evaluate/processing/input/model").mkdir(parents=True),
         "model.tar.gz: is missing"),
        (_damage(lambda content: content), "model.safetensors: is missing"),
        (_damage(lambda content: content[: len(content) // 2]), "cannot be unpacked"),
        (_damage(lambda content: content[:60] + bytes(4) + content[64:]), "cannot be unpacked"),
        (lambda root: _members(root, _link()), "model.tar.gz: cannot be unpacked"),
        (lambda root: _members(root, tarfile.TarInfo("../../escaped"),
                               root / "train/manifest-algo-1.json"),
         "model.tar.gz: cannot be unpacked"),
    ],
    ids=["missing", "no weights", "cut off", "flipped", "link out", "write out"],
)  # fmt: skip
def test_a_bad_model_is_named(trained: Path, tmp_path: Path, damage, expected: str):
    root = tmp_path / "run"
    shutil.copytree(trained, root)
    damage(root)
    for split in ("train", "test"):
        shutil.copytree(root / split, root / "evaluate/processing/input" / split)
    arguments = ["--root", str(root / "evaluate")]
    message = read_failure_message(evaluate_job, arguments, root / "evaluate/output/message")
    assert expected in message
    assert not list(tmp_path.rglob("escaped")) and not list(tmp_path.rglob("evaluation.json"))


def test_a_model_that_predicts_nan_is_rejected_and_one_of_other_data_not_evaluated(
    trained: Path, tmp_path: Path
):
    import torch
    from safetensors.torch import load_file, save_file

    root = tmp_path / "run"
    shutil.copytree(trained, root)
    weights = load_file(root / "train-job/model/model.safetensors")
    broken = {name: torch.full_like(tensor, float("nan")) for name, tensor in weights.items()}
    save_file(broken, root / "train-job/model/model.safetensors")
    assert evaluate(root)["metrics"]["loss"]["value"] is None
    verdict = gate(root, RAGGED)
    assert verdict["verdict"] == "reject" and "loss is missing" in verdict["reason"]
    for folder in (root / "train", root / "evaluate/processing/input/train"):
        shutil.rmtree(folder)
    shutil.copytree(root / "validation", root / "train")
    with pytest.raises(SystemExit):
        evaluate(root)
    message = (root / "evaluate/output/message").read_text()
    assert "the model was trained on dataset" in message


@pytest.mark.parametrize(
    ("change", "workload", "expected"),
    [
        (lambda data: shutil.rmtree(data / "validation"), "toys.ragged",
         "validation: holds no manifest"),
        (lambda data: next(data.glob("train/*.npy")).unlink(), "toys.ragged",
         "names it, but it is missing"),
        (lambda data: None, "language_model",
         "the train shards hold samples numbers uint16 (9,) made for {'kind': 'ragged'}"),
    ],
)  # fmt: skip
def test_training_without_its_data_ends_with_one_message(
    trained, tmp_path, change, workload, expected
):
    root = tmp_path / "job"
    shutil.copytree(trained / "train-job/input", root / "input")
    change(root / "input/data")
    loop = ["--max_steps", "2", "--global_batch", "4", "--micro_batch", "4", "--learning_rate", "1"]
    arguments = ["--workload", workload, *loop, "--root", str(root)]
    assert expected in read_failure_message(train_job, arguments, root / "output/failure")
