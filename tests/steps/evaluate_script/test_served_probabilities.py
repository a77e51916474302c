"""The answers of a champion's inference script, in every form that the toolkits let it have."""

import numpy as np
import pytest

from steps.evaluate_script.served_probabilities import main, probabilities


@pytest.mark.parametrize(
    "answer",
    [
        np.array([0.25, 0.5]),
        np.array([[0.75, 0.25], [0.5, 0.5]]),
        ("[0.25, 0.5]", "application/json"),
        b"0.25\n0.5\n",
        "0.75,0.25\n0.5,0.5",
        '{"predictions": [[0.25], [0.5]]}',
        {"predictions": [{"probability": 0.25}, {"probability": 0.5}]},
    ],
)
def test_an_answer_for_two_records(answer):
    assert probabilities(answer, 2) == [0.25, 0.5]


@pytest.mark.parametrize("answer", [0.25, "0.25", [0.75, 0.25], {"probability": 0.25}, [[0.25]]])
def test_an_answer_for_one_record(answer):
    assert probabilities(answer, 1) == [0.25]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([0.1], "2 records were asked, and the answer has 1"),
        ({"labels": [0, 1]}, "2 records were asked, and the answer has 1"),
        ([0.1, 1.1], "the answer for a record is 1.1; expected p, "),
        ([0.1, float("nan")], "is nan; expected p"),
        ([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]], "expected p, "),
        (["late", "early"], "is late; expected p"),
    ],
)
def test_another_answer_is_refused(answer, said):
    with pytest.raises(ValueError, match=said):
        probabilities(answer, 2)


def test_a_script_needs_predict_fn(tmp_path):
    (tmp_path / "half_a_script.py").write_text("def model_fn(model_dir):\n    return 1\n")
    with pytest.raises(AttributeError, match="has no predict_fn; it needs model_fn and transform"):
        main(str(tmp_path / "half_a_script.py"), str(tmp_path), "", "text/csv", "")
