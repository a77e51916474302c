"""Rows in, rows out."""

import io
import json

import pytest

from trainyard.common.errors import RecipeError
from trainyard.foresight import question, step_time
from trainyard.foresight.setting import Setting

ROW = {"gpu": "H100", "gpus": 8, "layers": 16, "hidden": 2048, "shard": "full", "micro_batch": 4}


def answer(line: object) -> dict:
    text = line if isinstance(line, str) else json.dumps(line)
    return next(question.iter_predictions([text]))


def test_each_figure_has_its_interval():
    found = answer({**ROW, "id": "x"})
    assert found["id"] == "x" and found["fits"] == "yes" and found["ignored"] == []
    for figure in ("step_seconds", "tokens_per_second_per_gpu"):
        assert found[figure]["p10"] < found[figure]["p50"] < found[figure]["p90"]
    memory = found["memory_gib"]
    parts = sum(part["p50"] for name, part in memory.items() if name != "total")
    assert parts == pytest.approx(memory["total"]["p50"], rel=1e-3)
    expected = step_time.predict_step_time(Setting(**ROW)).step_seconds.p50
    assert found["step_seconds"]["p50"] == pytest.approx(expected, rel=1e-3)


def test_what_a_stranger_measured_is_left_alone_and_rows_of_the_benchmark_are_understood():
    assert answer({**ROW, "measured": 6667, "source": "ours"})["ignored"] == ["measured", "source"]
    nested = answer({"row": ROW, "measured": {"step_seconds": 1}, "id": 7})
    assert (nested["step_seconds"], nested["id"]) == (answer(ROW)["step_seconds"], 7)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "is not JSON"),
        ("[1]", "is list; expected an object"),
        ({**ROW, "micro_batches": 2}, "micro_batches: no such field; nearest valid name"),
        ({**ROW, "gpu": "H10O"}, 'gpu: "H10O": no such device; nearest valid name: H100'),
        ({"gpu": "H100", "hidden": 2048}, "layers: left out: Field required"),
        ({**ROW, "tensor": 3}, "gpus 8: expected a multiple of tensor × pipeline × context, 3"),
        ({**ROW, "heads": "many"}, 'heads: "many": Input should be a valid integer'),
    ],
)
def test_a_wrong_row_is_answered_by_what_is_wrong(line: object, says: str):
    found = answer(line)
    assert found["error"].startswith(says)
    assert "step_seconds" not in found


def test_a_line_for_a_line(tmp_path):
    path, out = tmp_path / "rows.jsonl", io.StringIO()
    path.write_text(f"{json.dumps(ROW)}\n\n{{}}\n{json.dumps(ROW)}\n")
    assert not question.predict_file(path, out)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [one["line"] for one in found] == [1, 3, 4]
    assert ["error" in one for one in found] == [False, True, False]
    with pytest.raises(RecipeError, match="cannot be read"):
        question.predict_file(tmp_path / "none.jsonl", out)


def test_a_pipeline_without_accumulation_has_as_many_micro_batches_as_ranks():
    row = {**ROW, "pipeline": 4, "micro_batch": 8}
    found = answer(row)
    assert found["assumed"].startswith("micro_batch 8 is cut into 4")
    cut = answer({**row, "micro_batch": 2, "accumulation": 4})
    assert "assumed" not in cut and found["step_seconds"] == cut["step_seconds"]
    assert "assumed" not in answer({**row, "accumulation": 1})
