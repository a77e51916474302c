"""Single changes that make a training fit."""

from trainyard.foresight.memory import foresee, remedies
from trainyard.foresight.setting import Setting

SEVEN = Setting(
    gpu="A100-80",
    gpus=16,
    layers=32,
    hidden=4096,
    gated=True,
    vocab=32000,
    sequence=4096,
    micro_batch=8,
)


def test_each_keeps_the_global_batch_and_fits():
    found = list(remedies(SEVEN.model_copy(update={"shard": "full"})))
    assert {remedy.field for remedy in found} >= {"micro_batch", "recompute"}
    for remedy in found:
        changed = Setting.model_validate(SEVEN.model_dump() | {"shard": "full"} | remedy.changes)
        assert changed.tokens == SEVEN.tokens
        assert remedy.memory == foresee(changed) and remedy.memory.fits == "yes"


def test_the_largest_micro_batch_that_fits_comes_first():
    [first, *rest] = list(remedies(SEVEN.model_copy(update={"shard": "full"})))
    larger = Setting.model_validate(
        SEVEN.model_dump() | {"shard": "full", "micro_batch": 2 * first.changes["micro_batch"]}
    )
    assert first.field == "micro_batch" and foresee(larger).fits != "yes"
    assert [r.changes["micro_batch"] for r in rest if r.field == "micro_batch"] == sorted(
        (r.changes["micro_batch"] for r in rest if r.field == "micro_batch"), reverse=True
    )


def test_one_gpu_has_nobody_to_share_with():
    alone = Setting.model_validate(SEVEN.model_dump() | {"gpus": 1, "micro_batch": 1})
    assert list(remedies(alone)) == []
