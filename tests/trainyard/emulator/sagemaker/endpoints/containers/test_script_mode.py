"""A user's own functions behind the server of the XGBoost and scikit-learn images."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from trainyard.emulator.sagemaker.endpoints.model_containers import SCRIPTS

JSON = "application/json"


@pytest.fixture
def mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(SCRIPTS)
    yield importlib.import_module("script_mode")
    for name in ("script_mode", "http_front"):
        sys.modules.pop(name, None)


def script(**functions: Callable) -> SimpleNamespace:
    return SimpleNamespace(__name__="served", model_fn=lambda folder: "model", **functions)


def defaults() -> dict[str, Callable]:
    return {
        "input_fn": lambda body, kind: (body, kind),
        "predict_fn": lambda data, model: [*data, model],
        "output_fn": lambda prediction, accept: (repr(prediction), accept),
    }


def test_defaults_fill_in_for_functions_that_the_script_lacks(mode: ModuleType) -> None:
    answer = mode.make_request_handler(script(input_fn=lambda body, kind: [body]), defaults())
    asked = {"Content-Type": "text/csv", "Accept": "text/plain"}
    assert answer(b"1", asked) == (200, b"['1', 'model']", "text/plain; charset=utf-8")
    assert answer(b"1", {"Content-Type": "text/csv; charset=utf-8"})[1] == b"[b'1', 'model']"


def test_what_a_script_may_return_is_sent_as_flask_sends_it(mode: ModuleType) -> None:
    response = mode.worker.Response("a", status=202, mimetype="text/csv")
    page = "text/html; charset=utf-8"
    for returned, expected in {
        response: (202, b"a", "text/csv; charset=utf-8"),
        ("a", JSON): (200, b"a", JSON),
        "a": (200, b"a", page),
        b"a": (200, b"a", page),
    }.items():
        whole = script(transform_fn=lambda *asked, said=returned: said)
        assert mode.make_request_handler(whole, defaults())(b"", {}) == expected
    listed = script(output_fn=lambda prediction, accept: {"a": 1})
    assert mode.make_request_handler(listed, defaults())(b"", {}) == (200, b'{"a": 1}', JSON)


def test_an_answer_of_another_type_is_an_error(mode: ModuleType) -> None:
    odd = mode.make_request_handler(script(transform_fn=lambda *asked: 3.5), defaults())
    with pytest.raises(TypeError, match="returned float: expected worker.Response"):
        odd(b"", {})


def test_a_script_that_cannot_serve_is_refused_at_its_start(mode: ModuleType) -> None:
    with pytest.raises(NotImplementedError, match="served has no model_fn"):
        mode.make_request_handler(SimpleNamespace(__name__="served"), defaults())
    both = script(transform_fn=print, input_fn=print)
    with pytest.raises(ValueError, match="Cannot use transform_fn implementation with input_fn"):
        mode.make_request_handler(both, defaults())
