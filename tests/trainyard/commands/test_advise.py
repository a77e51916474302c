"""``trainyard advise``: what it prints, and what it refuses."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from trainyard.commands.advise import main
from trainyard.foresight import model_shapes
from trainyard.foresight.model_shapes import get_model
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import ActivationBytes
from trainyard.terminal import run

pytestmark = pytest.mark.long

SMALL = ("--model", "llama-2-7b", "--tokens", "20B", "--max-nodes", "2")
NF4 = ("--set", "lora_rank=8", "--set", "quantization=nf4")
V100 = (*SMALL, "--instances", "ml.p3.16xlarge")
A100 = (*SMALL, "--instances", "ml.p4d.24xlarge")


@pytest.fixture
def advise(capsys: pytest.CaptureFixture):
    """Runs the verb; what it printed, what it complained of, and its exit status."""

    def call(*arguments: str) -> tuple[str, str, int]:
        with pytest.raises(SystemExit) as end:
            run(main, "trainyard advise", arguments)
        told = capsys.readouterr()
        return told.out, told.err, int(end.value.code or 0)

    return call


def test_the_answer_is_one_screen_with_intervals_and_reasons(advise):
    out, _, status = advise(*SMALL, "--instances", "ml.p5.48xlarge", "--deadline", "30d")
    assert status == 0
    assert len(out.splitlines()) < 30
    for part in ("6.74 B parameters", "GiB", "hours", "USD", "1  the run: ", "in the first"):
        assert part in out
    assert out.count("(p10–p90)") == 3 and "…" not in out


def test_json_has_the_setting_as_a_row_that_can_be_asked_again(advise):
    out, _, _ = advise(*SMALL, "--instances", "ml.p5.48xlarge", "--json")
    told = json.loads(out)
    best = told["advised"][0]
    setting = Setting(**best["setting"])
    assert setting.tokens == told["question"]["global_batch"] * 4096
    assert best["memory_gib"]["fits"] == "yes"
    assert best["usd"]["p10"] < best["usd"]["p50"] < best["usd"]["p90"]
    assert best["why_not"] is None and told["advised"][1]["why_not"]


def test_what_nothing_fits_on_has_a_status_of_its_own(advise):
    out, _, status = advise(
        *("--model", "llama-3-70b", "--tokens", "1T", "--max-nodes", "1"),
        *("--instances", "ml.p4d.24xlarge"),
    )
    assert status == 3
    assert "No layout fits." in out and "A layout would fit with " in out


def test_fields_of_a_layout_are_chosen_from(advise):
    out, _, _ = advise(
        *SMALL, "--instances", "ml.p5.48xlarge", "--set", "tensor=2,4", "--set", "pipeline=1",
        "--set", "micro_batch=2,1", "--json",
    )  # fmt: skip
    told = json.loads(out)
    settings = [one["setting"] for one in told["advised"] + told["ranked"]]
    assert {one["tensor"] for one in settings} == {2, 4}
    assert not any("pipeline" in one for one in settings)


def test_shapes_that_were_traced_are_advised_as_the_formulas_are(advise, tmp_path: Path):
    model = Setting(gpu="H100-80", compile=True, **get_model("llama-2-7b").shape)
    formula = model_shapes.derive_shapes(model)
    first = formula.units[0]
    nothing = {policy: ActivationBytes(0, 0) for policy in first.kept}  # as tracing has embeddings
    traced = replace(formula, units=(replace(first, kept=nothing), *formula.units[1:]))
    place = tmp_path / "shapes.json"
    place.write_text(json.dumps(asdict(traced)))
    few = ("--instances", "ml.p5.48xlarge", "--max-nodes", "1", "--set", "pipeline=1", "--json")
    asked = ("--tokens", "20B", "--global-batch", "1024", *few)
    told = [
        json.loads(advise(*given, *asked)[0])["advised"][0]
        for given in (("--shapes", str(place)), ("--model", "llama-2-7b"))
    ]
    assert told[0]["mfu"] == pytest.approx(told[1]["mfu"], rel=0.02)
    assert told[0]["setting"]["shard"] == told[1]["setting"]["shard"]


@pytest.mark.parametrize(
    ("asked", "batch"),
    [(("--set", "lora_rank=16", "--set", "quantization=nf4"), 16), (("--fine-tune",), 64)],
)
def test_fine_tuning_gets_no_batch_and_no_tokens_of_pretraining(
    advise, asked: tuple[str, ...], batch: int
):
    few = ("--instances", "ml.p5.48xlarge", "--max-nodes", "1", "--model", "llama-2-7b", "--json")
    out, _, _ = advise(*few, "--tokens", "50M", *asked)
    told = json.loads(out)
    assert told["question"]["global_batch"] == batch
    assert told["question"]["steps"] == -(-50_000_000 // (batch * 4096))
    _, err, status = advise(*few, *asked)
    assert status == 1 and "--tokens TEXT is missing" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tokens", "3B"), "--layers NUMBER or --model NAME or --shapes FILE is missing"),
        (("--model", "llama-3-9b"), "nearest valid name: llama-3"),
        (("--model", "mistral-7b"), "--tokens TEXT is missing"),
        ((*SMALL, "--set", "vocabu=3"), "--set vocabu: unknown field; nearest valid name: vocab"),
        ((*SMALL, "--set", "tensor=two"), "--set tensor=two"),
        ((*SMALL, "--set", "gpus=8"), "--set gpus: follows from --instances"),
        ((*SMALL, "--instances", "ml.p5.49xlarge"), "nearest valid name: ml.p5"),
        ((*SMALL, "--shapes", "gone.json"), "--shapes gone.json: cannot be read"),
        ((*SMALL, "--deadline", "9999w"), "--deadline 9999w: expected a time"),
        ((*SMALL, "--budget", "-1"), "--budget -1: expected a number"),
        ((*SMALL, "--budget", "nan"), "--budget nan: expected a number"),
        ((*SMALL, "--region", "mars-1"), "region mars-1: SageMaker has no region of that name"),
        ((*SMALL, "--tokens", "1e40"), "--tokens 1e40: expected a number"),
        ((*SMALL, "--tokens", "9e999"), "--tokens 9e999: expected a number"),
        ((*SMALL, "--tokens", "1M"), "tokens 1,000,000: expected at least one step's"),
        ((*SMALL, "--set", "kv_heads=5"), "kv_heads 5: expected a divisor of heads, 32"),
        ((*SMALL, "--set", "heads=33"), "heads 33: expected a divisor of hidden, 4096"),
        ((*SMALL, "--layers", "1000000000"), "--set layers=1000000000: Input should be less"),
        ((*SMALL, "--set", "quantization=nf4"), "quantization nf4: expected adapters"),
        ((*SMALL, *NF4, "--set", "tensor=2"), "--set tensor=2: expected 1 with quantization nf4"),
        ((*SMALL, "--set", "lora_rank=9999"), "lora_rank 9999: expected at most hidden, 4096"),
        ((*SMALL, "--set", "pipeline=64"), "--set pipeline=64: is 64 stages or more; expected at"),
        ((*V100, "--set", "attention=flash2"), "flash2: does not run on V100-16; use flash"),
        ((*A100, "--set", "precision=fp8"), "(A100-40): expected a device with fp8"),
    ],
)
def test_what_is_wrong_is_named(advise, arguments: tuple[str, ...], said: str):
    rest = () if "--instances" in arguments else ("--instances", "ml.p5.48xlarge")
    _, err, status = advise(*arguments, *rest)
    assert status == 1 and said in " ".join(err.split())


def test_rows_are_answered_and_the_status_says_whether_all_could_be(advise, tmp_path: Path):
    row = {"gpu": "H100", "gpus": 8, "layers": 16, "hidden": 2048, "shard": "full"}
    path = tmp_path / "rows.jsonl"
    for rows, expected in (([row], 0), ([row, {}], 1)):
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        out, _, status = advise("--rows", str(path), "--json")
        assert status == expected
        assert len(out.splitlines()) == len(rows)


def test_learning_from_a_run_takes_what_was_trained(advise, tmp_path: Path):
    """Nobody here can read it from the job of any pipeline."""
    _, said, status = advise("--calibrate", "arn:x")
    assert status == 1 and "--setting FILE" in said and "pipelines.advise" in said
    wrong = tmp_path / "setting.json"
    wrong.write_text('{"gpu": "H100-80", "layers": 32}')
    _, said, status = advise("--calibrate", "arn:x", "--setting", str(wrong))
    assert status == 1 and "hidden" in said
