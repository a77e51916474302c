"""A rule in real trainings: all ranks stop after one step, and a restart continues its memory."""

import json
import shutil

import pytest

from tests.training import worlds
from tests.training.trainings import history

pytestmark = pytest.mark.long

PLANNED = {"minutes": 0.0002}
WARNS = json.dumps({"cost_beyond_plan": PLANNED})
STOPS = json.dumps({"cost_beyond_plan": PLANNED | {"action": "stop"}})
FROZEN = {"learning_rate": 1e-12, "max_steps": 20_000, "micro_batch": 4, "checkpoint_interval": 100}


@pytest.mark.slow
def test_a_rule_stops_both_ranks_after_one_step_that_is_saved_and_the_job_says_why(root):
    codes = worlds.finish(worlds.start(root, 2, strategy="ddp", watch=STOPS, **FROZEN))
    log = (root / "rank-0.log").read_text()
    assert codes == [1, 1], log
    message = (root / "output/failure").read_text()
    saved = max(root.glob("checkpoints/*/step-*/complete.json"))
    step = int(saved.parent.name[5:])
    assert message.startswith(f"stopped by watch rule cost_beyond_plan after step {step}: ")
    assert "a checkpoint is saved" in message
    assert log.count(" watch.cost_beyond_plan=") == 1 and "action=stop: " in log
    assert "watch." not in (root / "rank-1.log").read_text()
    lines = [json.loads(line) for line in (saved.parents[1] / "history.jsonl").open()]
    assert len([line for line in lines if "watch.cost_beyond_plan" in line]) == 1


def test_a_resumed_training_does_not_repeat_what_was_said(root, train, capsys):
    settings = FROZEN | {"max_steps": 20, "checkpoint_interval": 10, "watch": WARNS}
    train(root, **settings)
    assert capsys.readouterr().out.count(" watch.cost_beyond_plan=") == 1
    [newest] = root.glob("checkpoints/*/step-00000020")
    shutil.rmtree(newest)
    shutil.rmtree(root / "model")
    train(root, **settings)
    assert " watch." not in capsys.readouterr().out
    assert len([line for line in history(root) if "watch.cost_beyond_plan" in line]) == 1
