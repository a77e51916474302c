"""Adapters: only they are trained, saved and exported; peft, transformers and our code agree."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from steps.evaluate import job as evaluate_job
from steps.train import job
from tests.training import worlds
from tests.training.strategies.cases import SETTINGS, container, distance, write_data
from tests.training.trainings import arguments, losses
from training.export.artifact import load_artifact
from training.weights.finetuning.hugging_face_folder import hash_model_files
from trainyard.common.errors import DataError
from trainyard.common.hashes import hash_file

pytestmark = pytest.mark.long

MODEL = {"context_length": 32, "layers": 2, "heads": 4, "kv_heads": 2, "dim": 32, "norm_eps": 1e-6}
STEPS = 6
SHORT = SETTINGS | {
    "workload_config": json.dumps(MODEL),
    "strategy": "single",
    "precision": "float64",
    "max_steps": STEPS,
    "learning_rate": 0.01,
    "warmup_steps": 0,
    "checkpoint_interval": 3,
    "validation_interval": 3,
}
START = {"start_from": json.dumps({"model": "s3://bucket/base/model.tar.gz"})}
EXACT = 1e-12  # relative, in float64


def make_adapter_settings(**adapters) -> dict:
    return START | {"tuning": json.dumps({"adapters": {"rank": 2, "dropout": 0.1} | adapters})}


def archive(root: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    with tarfile.open(target / "model.tar.gz", "w:gz") as tar:
        tar.add(root / "model", ".")
    return target


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """Train a container with data; its model is the base."""
    data = tmp_path_factory.mktemp("data")
    write_data(data)
    root = container(data, tmp_path_factory.mktemp("base"))
    job.main(arguments(root, SHORT))
    archive(root, root / "start")
    return root


def beginning(base: Path, root: Path, start: Path | None = None) -> Path:
    """Prepare a container that starts from the base."""
    shutil.copytree(base / "input", root / "input")
    shutil.copytree(start or base / "start", root / "input/data/start")
    return root


@pytest.fixture(scope="module")
def alone(base, tmp_path_factory) -> Path:
    """Train adapters in a single process."""
    root = beginning(base, tmp_path_factory.mktemp("alone") / "ml")
    job.main(arguments(root, SHORT | make_adapter_settings()))
    return root


def newest(root: Path) -> dict[str, torch.Tensor]:
    files = sorted(root.glob("checkpoints/*/step-*/*.safetensors"))
    return {n: t for path in files if path.parent == files[-1].parent
            for n, t in load_file(path).items()}  # fmt: skip


def test_adapters_alone_are_in_checkpoints_and_in_the_artifact(base, alone):
    before = hash_file(base / "start/model.tar.gz")
    assert hash_file(alone / "input/data/start/model.tar.gz") == before
    assert all(".lora_A." in name or ".lora_B." in name for name in newest(alone))
    sizes = [sum(t.nbytes for t in newest(root).values()) for root in (alone, base)]
    assert sizes[0] < sizes[1] / 3  # with so small a model
    assert not (alone / "model/model.safetensors").exists()
    files = [base / "model/model.safetensors", alone / "model/adapter/adapter_model.safetensors"]
    assert files[1].stat().st_size < files[0].stat().st_size / 3
    told = json.loads((alone / "model/config.json").read_text())
    assert told["base"]["sha256"] == before == told["training"]["parts"]["start"]["model"]
    assert told["training"]["parts"]["tuning"]["adapters"]["rank"] == 2
    best = losses(alone, "validation_loss")
    assert best[STEPS] < losses(base, "validation_loss")[STEPS]


def test_a_resumed_one_is_bitwise_the_same(alone, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(alone, again)
    for path in [*again.glob("checkpoints/*/step-00000006"), again / "model"]:
        shutil.rmtree(path)
    job.main(arguments(again, SHORT | make_adapter_settings()))
    name = "model/adapter/adapter_model.safetensors"
    assert (again / name).read_bytes() == (alone / name).read_bytes()
    assert losses(again) == losses(alone)


@pytest.mark.sweep
@pytest.mark.slow
def test_ddp_and_fsdp_give_the_curve_of_one_process_and_resume_bitwise(base, alone, tmp_path):
    cases = {
        beginning(base, tmp_path / "ddp"): {"strategy": "ddp"},
        beginning(base, tmp_path / "fsdp"): {
            "strategy": "fsdp",
            "activation_checkpointing": "full",
        },
    }
    worlds.train_and_resume(
        {r: SHORT | make_adapter_settings() | c for r, c in cases.items()}, 2, STEPS
    )
    for root, case in cases.items():
        assert distance(losses(root), losses(alone)) < EXACT, case
        first, second, one = (
            (r / n / "adapter/adapter_model.safetensors")
            for r, n in ((root, "first"), (root, "model"), (alone, "model"))
        )
        assert first.read_bytes() == second.read_bytes(), case
        found, expected = load_file(second), load_file(one)
        assert all(torch.allclose(found[n], t, rtol=1e-9) for n, t in expected.items()), case


@torch.inference_mode()
def logits(model) -> torch.Tensor:
    tokens = torch.randint(0, 257, (2, 30), generator=torch.Generator().manual_seed(1))
    found = model(tokens)
    return getattr(found, "logits", found)


def test_peft_reads_them_on_the_base(base, alone):
    from peft import PeftModel

    found = logits(load_artifact(alone / "model", base / "start")[1].double())
    theirs = AutoModelForCausalLM.from_pretrained(base / "model").double()
    untouched = logits(theirs)
    by_peft = logits(PeftModel.from_pretrained(theirs, alone / "model/adapter").double().eval())
    torch.testing.assert_close(found, by_peft, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(found, untouched, atol=1e-3)


def test_the_base_may_be_a_hugging_face_folder_and_the_model_merged(base, alone, tmp_path):
    folder = tmp_path / "folder"
    AutoModelForCausalLM.from_pretrained(base / "model", dtype=torch.float64).save_pretrained(
        folder, max_shard_size="20kB"
    )
    assert len(list(folder.glob("*.safetensors"))) > 1
    start = {"start_from": json.dumps({"hugging_face": "s3://bucket/base/"})}
    root = beginning(base, tmp_path / "ml", folder)
    job.main(arguments(root, SHORT | make_adapter_settings(merge=True) | start))
    assert losses(root) == losses(alone)
    merged = AutoModelForCausalLM.from_pretrained(root / "model", dtype=torch.float64)
    found = logits(load_artifact(alone / "model", base / "start")[1].double())
    torch.testing.assert_close(logits(merged), found, rtol=1e-6, atol=1e-6)
    told = json.loads((root / "model/config.json").read_text())
    assert told["base"]["sha256"] == hash_model_files(folder)
    assert told["training"]["parts"]["start"] == {"hugging_face": hash_model_files(folder)}


def rename_to_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def empty_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def make_config_change(**changes) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(("damage", "expected"), [
    (rename_to_pickle, "pytorch_model.bin: is a pickle, which runs code when it is read"),
    (empty_tokenizer, "start_from: the SHA-256 of s3://bucket/base/ is"),
    (make_config_change(num_key_value_heads=4), "workload.config.kv_heads is 2, the base has 4"),
    (make_config_change(model_type="gpt2"), "model_type is 'gpt2'"),
    (lambda folder: (folder / "config.json").unlink(), "holds no config.json, but"),
])  # fmt: skip
def test_a_folder_that_is_no_base_is_refused_by_name(base, tmp_path, damage, expected):
    root = beginning(base, tmp_path / "ml", base / "model")
    folder = root / "input/data/start"
    asked = {"hugging_face": "s3://bucket/base/"}
    if damage is empty_tokenizer:
        asked["model_sha256"] = hash_model_files(folder)
    damage(folder)
    assert expected in failure(root, make_adapter_settings() | {"start_from": json.dumps(asked)})


def failure(root: Path, settings: dict) -> str:
    with pytest.raises(SystemExit):
        job.main(arguments(root, SHORT | settings))
    return (root / "output/failure").read_text()


@pytest.mark.parametrize(("tuning", "expected"), [
    ({"adapters": {"targets": ["q_proj"]}}, "'q_proj' is not a linear layer of the model's block"),
    ({"adapters": {"rank": 0}}, "tuning.adapters.rank: Input should be greater than"),
    ({"freeze": ["layers.*"]}, "train.freeze: 'layers.*' matches none of the model's weights"),
    ({"freeze": ["*"]}, "all weights of the model are frozen"),
    ({"freeze": ["*"], "adapters": {}}, "freeze * and adapters are both set"),
])  # fmt: skip
def test_what_cannot_be_tuned_is_refused_by_name(base, tmp_path, tuning, expected):
    root = beginning(base, tmp_path / "ml")
    assert expected in failure(root, START | {"tuning": json.dumps(tuning)})


def test_adapters_without_a_base_are_refused(base, tmp_path):
    said = failure(beginning(base, tmp_path / "ml"), {"tuning": json.dumps({"adapters": {}})})
    assert "need an existing model" in said


def test_frozen_weights_stay_as_they_begin_and_adapters_begin_with_the_loss_of_their_base(
    base, alone, tmp_path
):
    root = beginning(base, tmp_path / "ml")
    tuning = json.dumps({"freeze": ["embedding.*", "blocks.0.*"]})
    job.main(arguments(root, SHORT | START | {"tuning": tuning, "max_steps": 3}))
    assert losses(root)[1] == pytest.approx(losses(alone)[1], rel=1e-12)
    before, after = (load_file(r / "model/model.safetensors") for r in (base, root))
    same = {name for name in before if torch.equal(before[name].float(), after[name].float())}
    assert same == {n for n in before if "layers.0." in n or "embed" in n}
    named = {n for n in newest(root) if n.startswith("optimizer.")}
    assert named and not any("blocks.0" in name or "embedding" in name for name in named)


def test_adapters_are_opened_with_their_own_base_only(base, alone, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="TRAINYARD_BASE names"):
        load_artifact(alone / "model")
    monkeypatch.setenv("TRAINYARD_BASE", str(base / "start"))
    load_artifact(alone / "model")
    other = archive(alone, tmp_path / "other")
    with pytest.raises(DataError, match="the adapters belong to base"):
        load_artifact(alone / "model", other)
    root = beginning(base, tmp_path / "ml", other)
    assert "contains only adapters; start from their base" in failure(root, START)


def test_evaluate_adds_them_to_the_base_and_scores_the_base_on_the_same_rows(base, alone, tmp_path):
    inputs = tmp_path / "processing/input"
    archive(alone, inputs / "model")
    shutil.copytree(base / "start", inputs / "base")
    shutil.copytree(base / "start", inputs / "champion")
    for split, given in (("train", "train"), ("test", "validation")):
        shutil.copytree(base / "input/data" / given, inputs / split)
    evaluate_job.main(["--root", str(tmp_path), "--base", "s3://b/", "--champion", "arn:base"])
    output = tmp_path / "processing/output"
    found = json.loads((output / "evaluation/evaluation.json").read_text())
    scored = found["baselines"]["base_model"]
    champion = {name: metric["value"] for name, metric in found["champion"]["metrics"].items()}
    assert scored == pytest.approx(champion)
    assert found["metrics"]["loss"]["value"] != pytest.approx(scored["loss"])
    assert found["model"]["base"]["sha256"] == hash_file(base / "start/model.tar.gz")
    tables = [output / f"scores/{name}.parquet" for name in ("challenger", "baseline-base_model")]
    examples = [pq.read_table(path)["example"].to_pylist() for path in tables]
    assert examples[0] == examples[1]
