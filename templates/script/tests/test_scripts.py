"""Check that the three scripts work together: a short training, its evaluation, a request."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CODE = PROJECT / "code"


def run_script(script, folder, *arguments):
    """Run a script as SageMaker does, in folders below ``folder``."""
    environment = {
        "SM_MODEL_DIR": str(folder / "model"),
        "SM_OUTPUT_DATA_DIR": str(folder / "output"),
        "SM_CHANNEL_TRAINING": str(PROJECT / "data/train"),
        "SM_CHANNEL_TEST": str(PROJECT / "data/test"),
        "OMP_NUM_THREADS": "1",  # such a small model is slower on more threads
    }
    for name in ("model", "output"):
        (folder / name).mkdir(exist_ok=True)
    command = [sys.executable, str(CODE / script), *arguments]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_scripts_fit_each_other(tmp_path, monkeypatch):
    assert "loss=" in run_script("train.py", tmp_path, "--epochs", "100")
    run_script("evaluate.py", tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "output/scores.jsonl").open()]
    assert sum(row["accuracy"] for row in rows) / len(rows) > 0.9
    monkeypatch.syspath_prepend(str(CODE))
    import inference

    request = inference.input_fn((CODE / "request.json").read_text(), "application/json")
    answer = inference.predict_fn(request, inference.model_fn(tmp_path / "model"))
    assert 0 < json.loads(inference.output_fn(answer, "application/json"))["probability"] < 1
