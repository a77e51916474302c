"""The scaling report: its arithmetic, and one real run of two ranks."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from training import scaling
from trainyard.common.errors import TrainingError

TINY = '{"context_length": 8, "layers": 1, "heads": 2, "dim": 16}'


def lines(*rates: float, communication: float = 0.1) -> list[dict[str, float]]:
    parts = {f"{part}_seconds": 0.0 for part in scaling.PARTS}
    parts["communication_seconds"] = communication
    same = parts | {"step_seconds": 0.4, "memory_mb": 100.0}
    return [{"units_per_second": rate, **same} for rate in rates]


def test_speed_up_and_efficiency_are_relative_to_the_fewest_ranks():
    measured = {4: lines(30, 50, 300), 2: lines(30, 40, 50), 8: lines(160)}
    two, four, eight = scaling.summarised(measured, {2: 8, 4: 8, 8: 8})
    assert [p.units_per_second for p in (two, four, eight)] == [40, 50, 160]
    assert [p.speed_up for p in (two, four, eight)] == [1, 1.25, 4]
    assert [p.efficiency for p in (two, four, eight)] == [1, 0.625, 1]
    assert two.quartiles == (35, 45) and two.shares["communication"] == pytest.approx(0.25)
    assert two.mfu is None


@pytest.mark.sweep
@pytest.mark.slow
def test_the_report_of_two_ranks(tmp_path: Path):
    out = tmp_path / "out"
    options = "--world 2 --weak --global-batch 4 --micro-batch 2 --steps 2 --warm-up 1 --rounds 1"
    scaling_app = scaling.typer.Typer()
    scaling_app.command()(scaling.main)
    done = CliRunner().invoke(
        scaling_app, [*options.split(), "--workload-config", TINY, "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    report = json.loads((out / "scaling.json").read_text())
    [point] = report["points"]
    assert (point["world"], point["global_batch"], point["steps"]) == (2, 8, 2)
    assert point["units_per_second"] > 0 and 0 < point["shares"]["communication"] < 1
    assert (out / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert "weak scaling" in done.output


def test_what_cannot_run_is_refused_before_anything_starts(tmp_path: Path):
    with pytest.raises(TrainingError, match="--world 3: global_batch 32 cannot be shared"):
        scaling.main(world="1,3", settings=[], out=tmp_path)
    with pytest.raises(TrainingError, match="precision: Input should be"):
        scaling.main(world="1", settings=["precision=fp8"], out=tmp_path)
    with pytest.raises(TrainingError, match="--set precision: expected FIELD=VALUE"):
        scaling.main(world="1", settings=["precision"], out=tmp_path)
    with pytest.raises(TrainingError, match="--world 0,2: expected numbers"):
        scaling.main(world="0,2", settings=[], out=tmp_path)
    with pytest.raises(TrainingError, match="--data is missing: .* not for tabular"):
        settings = '{"label": "y", "numbers": ["x"]}'
        scaling.synthetic(tmp_path, "tabular", settings)


@pytest.mark.sweep
@pytest.mark.slow
def test_a_failed_run_says_the_jobs_own_reason(tmp_path: Path):
    arguments = ["--workload", "language_model", "--max_steps", "0"]
    with pytest.raises(TrainingError, match="^1 ranks: hyperparameter max_steps: is '0'"):
        scaling.measured(tmp_path / "root", tmp_path, 1, 1, arguments)
