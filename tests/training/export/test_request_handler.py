"""A served model's answers: the evaluation's own score, or what is wrong with the request."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from tests.training.workloads.tabular.tables import SETTINGS as TABULAR
from tests.training.workloads.tabular.tables import dataset, pack, table
from training.export import artifact, inference
from training.export.inference import WARM, ServedModel, load_served_model
from training.export.weight_location import LocalWeights
from training.workloads import Workload, load_spec, load_workload
from training.workloads.tabular.model import select_inputs
from trainyard.common.errors import DataError

LANGUAGE = {"context_length": 8, "layers": 1, "heads": 2, "dim": 16}


def save_served_model(folder: Path, name: str, settings: dict, workload) -> ServedModel:
    torch.manual_seed(1)
    description = {"workload": name, "workload_config": settings}
    artifact.save_artifact(
        folder, LocalWeights(workload.model().state_dict()), workload, description, []
    )
    return load_served_model(folder)


@pytest.fixture(scope="module")
def language(tmp_path_factory) -> ServedModel:
    workload = load_workload("language_model", LANGUAGE)
    return save_served_model(
        tmp_path_factory.mktemp("language"), "language_model", LANGUAGE, workload
    )


@pytest.fixture(scope="module")
def tabular(tmp_path_factory) -> ServedModel:
    workload = load_workload("tabular", TABULAR)
    workload.fit(dataset(tmp_path_factory.mktemp("train"), TABULAR, {"a": table(300, 1)}))
    return save_served_model(tmp_path_factory.mktemp("tabular"), "tabular", TABULAR, workload)


@pytest.mark.parametrize("name", ["tabular", "language"])
def test_a_model_is_warm_before_its_first_request(name: str, request, monkeypatch):
    """Its own answers, and no refusals, have been made by then."""
    served: ServedModel = request.getfixturevalue(name)
    found: list = []
    whole = ServedModel.answer_all
    monkeypatch.setattr(
        ServedModel, "answer_all", lambda self, asked: found.append(whole(self, asked)) or found[-1]
    )
    served.warm_up()
    assert found and not [one for each in found for one in each if isinstance(one, Exception)]


def test_a_workload_that_knows_no_record_stays_cold(language):
    class Bare:
        def answers(self, model, requests):
            return [{"a": 1} for _ in requests]

    ServedModel(cast(Workload, Bare()), language.model).warm_up()


def test_the_answers_have_the_numbers_that_a_recipe_may_name(language, tabular):
    text, record = {"text": "def f(x):"}, records(1)[0]
    assert {*language.answer(text)} == {*(load_spec("language_model").answer_numbers or ())}
    assert {*tabular.answer(record)} == {*(load_spec("tabular").answer_numbers or ())}


def test_a_text_costs_what_its_samples_cost(language):
    import pyarrow as pa

    text = "größer: x = y + 1\n"
    packer = language.workload.packing.packer()
    samples = packer.add(pa.record_batch({"text": [text]}))["tokens"]
    samples = np.concatenate([samples, packer.flush()["tokens"]])
    parts = [language.answer({"tokens": sample}) for sample in samples.tolist()]
    whole = language.answer({"text": text})
    assert whole["bytes"] == len(text.encode()) - 1  # nothing predicts the first
    assert whole["tokens"] == len(text.encode())  # the end is predicted, and has no bytes
    for name in ("nats", "bytes", "tokens"):
        assert whole[name] == pytest.approx(sum(part[name] for part in parts), rel=1e-6)
    assert whole["bits_per_byte"] == whole["nats"] / math.log(2) / whole["bytes"]


def test_a_sample_costs_what_the_model_says(language):
    tokens = torch.randint(0, 256, (1, 9))
    with torch.inference_mode():
        logits = language.model(tokens[:, :-1]).float().log_softmax(-1)
    expected = -logits[0, torch.arange(8), tokens[0, 1:]].double().sum().item()
    found = language.answer({"tokens": tokens[0].tolist()})
    assert found["nats"] == pytest.approx(expected, rel=1e-6) and found["tokens"] == 8


def test_a_record_gets_the_probability_of_its_packed_sample(tabular):
    rows = table(20, 7)
    samples, _ = pack(TABULAR, [rows])
    batch = {name: torch.from_numpy(array) for name, array in samples.items()}
    with torch.inference_mode():
        expected = tabular.model(*select_inputs(batch)).double().sigmoid().tolist()
    seen = [*TABULAR["categories"], *TABULAR["numbers"]]
    for (_, row), probability in zip(rows.iterrows(), expected, strict=True):
        record = {name: None if row[name] != row[name] else row[name] for name in seen}
        assert tabular.answer({"record": record})["probability"] == pytest.approx(
            probability, rel=1e-6
        )


NINE, NO_NUMBER = "expected 9 integers from 0 to 256", "record.weight: is {}; expected a number"


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("language", [], "expected a JSON object"),
        ("language", {}, "the request holds nothing"),
        ("language", {"text": 1}, "the request holds text"),
        ("language", {"text": "a", "tokens": []}, "the request holds text, tokens"),
        ("language", {"text": ""}, "no text whose bytes"),
        ("language", {"text": "\ud800"}, "half of a surrogate pair"),
        ("language", {"tokens": [1, 2]}, NINE),
        ("language", {"tokens": [0] * 8 + [257]}, NINE),
        ("language", {"tokens": [True] * 9}, NINE),
        ("tabular", {"record": []}, "column: value"),
        ("tabular", {"row": {}}, "column: value"),
        ("tabular", {"record": {"wieght": 1.0}}, "no column wieght; the model reads"),
        ("tabular", {"record": {"weight": "heavy"}}, NO_NUMBER.format("'heavy'")),
        ("tabular", {"record": {"weight": True}}, NO_NUMBER.format("True")),
        ("tabular", {"record": {"colour": 1.5}}, "colour: is 1.5; expected a string"),
    ],
)
def test_a_request_that_a_model_cannot_read_is_named(name, asked, expected, request):
    with pytest.raises(DataError, match=expected):
        request.getfixturevalue(name).answer(asked)


def test_missing_values_are_missing_not_zero(tabular):
    nothing = tabular.answer({"record": {}})
    assert nothing == tabular.answer({"record": {"weight": None, "colour": None}})
    assert nothing != tabular.answer({"record": {"weight": 0.0}})


def test_the_handlers_of_the_toolkit(language, tmp_path):
    """AWS's own errors become the status of the answer."""
    from sagemaker_inference.errors import BaseInferenceToolkitError

    request = inference.input_fn('{"text": "def f(x):"}', "application/json; charset=utf-8")
    answer = inference.predict_fn(request, language)
    assert json.loads(inference.output_fn(answer, "*/*")) == answer
    for call, status in (
        (lambda: inference.input_fn("a,b", "text/csv"), 415),
        (lambda: inference.input_fn("{", "application/json"), 400),
        (lambda: inference.predict_fn({}, language), 400),
    ):
        with pytest.raises(BaseInferenceToolkitError) as refused:
            call()
        assert refused.value.status_code == status


class Batch:
    """Headers of requests and states of answers, as in TorchServe 0.12's ts/context.py."""

    model_name = "model"

    def __init__(self, folder: Path, types: list[str]) -> None:
        self.system_properties = {"model_dir": str(folder)}
        self.request_processor = [
            SimpleNamespace(get_request_properties=lambda one=one: {"Content-Type": one})
            for one in types
        ]
        self.statuses, self.types = dict.fromkeys(range(len(types)), 200), {}

    def set_response_status(self, code: int, phrase: str, idx: int) -> None:
        self.statuses[idx] = code
        assert "\n" not in phrase

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.types[idx] = value


def test_awss_toolkit_answers_a_batch_of_torchserve_in_one_pass(tabular, monkeypatch):
    """The toolkit is AWS's own; by itself it answers a batch with a failure by one body."""
    from sagemaker_inference.transformer import Transformer
    from sagemaker_pytorch_serving_container.handler_service import HandlerService

    folder = tabular.workload.packing.assets
    monkeypatch.setattr(Transformer, "transform", Transformer.transform)  # put back afterwards
    monkeypatch.setenv("SAGEMAKER_PROGRAM", "training.export.inference.py")
    passes = []
    monkeypatch.setattr(
        ServedModel, "_answer_together", record_batch_sizes(ServedModel._answer_together, passes)
    )
    service = HandlerService()
    service.initialize(Batch(folder, []))
    asked = records(30)
    bodies = [json.dumps(one).encode() for one in asked]
    context = Batch(folder, ["application/json"] * 30)
    found = service.handle([{"body": body} for body in bodies], context)
    assert [json.loads(one) for one in found] == [tabular.answer(one) for one in asked]
    assert passes[: WARM + 1] == [*[1] * WARM, 30]  # it is warm before the first request
    assert set(context.statuses.values()) == {200}

    kinds = ["application/json"] * 3 + ["text/csv", "application/json; charset=utf-8"]
    bodies[1:3] = b"{", b'{"record": {"weight": "heavy"}}'
    context = Batch(folder, kinds)
    found = service.handle([{"body": body} for body in bodies[:5]], context)
    assert [*context.statuses.values()] == [200, 400, 400, 415, 200]
    assert json.loads(found[0]) == tabular.answer(asked[0])
    assert json.loads(found[4]) == tabular.answer(asked[4])
    assert found[2] == "record.weight: is 'heavy'; expected a number that float32 holds or null"
    assert set(context.types.values()) == {"application/json"}


def record_batch_sizes(method, sizes: list[int]):
    """The method, which then notes the size of each of its batches."""

    def spy(self, requests):
        sizes.append(len(requests))
        return method(self, requests)

    return spy


def records(count: int) -> list[dict]:
    rows = table(count, 7)[[*TABULAR["categories"], *TABULAR["numbers"]]]
    return [{"record": row.where(row.notna(), None).to_dict()} for _, row in rows.iterrows()]


@pytest.mark.parametrize("name", ["tabular", "language"])
def test_an_answer_does_not_depend_on_the_other_requests(name, request):
    """Bit for bit, on a processor: a batch is a multiple of ROWS samples, or of long ones."""
    served = request.getfixturevalue(name)
    texts = [{"text": "ab" * length} for length in range(1, 41)]
    asked = records(40) if name == "tabular" else texts
    alone = [served.answer(one) for one in asked]
    for size in (3, 8, 40):
        batches = [asked[start : start + size] for start in range(0, 40, size)]
        assert [one for batch in batches for one in served.answer_all(batch)] == alone


def test_a_request_costs_no_other_its_answer(tabular):
    asked = records(20)
    asked[3], asked[11] = {"record": {"wieght": 1}}, "no object"
    found = tabular.answer_all(asked)
    wrong = {index for index, one in enumerate(found) if isinstance(one, DataError)}
    assert wrong == {3, 11} and "no column wieght" in str(found[3])
    assert found[4] == tabular.answer(asked[4])

    class Faulty:
        def answers(self, model, requests):
            return [{"ratio": 1 / request["x"]} for request in requests]

    one, two = ServedModel(Faulty(), tabular.model).answer_all([{"x": 0}, {"x": 2}])
    assert isinstance(one, ZeroDivisionError) and two == {"ratio": 0.5}
    assert tabular.answer_all([]) == []


def test_a_workload_that_answers_nothing_says_so(language):
    with pytest.raises(DataError, match="cannot answer requests"):
        ServedModel(cast(Workload, object()), language.model).answer({})


def test_the_artifact_carries_the_code_that_answers(tmp_path, monkeypatch):
    """The bytes are equal each time, without the steps; the user's own workload is included."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    assert len({artifact.add_code(tmp_path / name, "toys.ragged") for name in ("a", "b")}) == 1
    found, other = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (tmp_path / "a", tmp_path / "b")
    )
    assert found == other
    assert {path.as_posix() for path in found} >= {
        *("code/inference.py", "code/training/export/inference.py", "code/requirements.txt"),
        *("code/trainyard/common/errors.py", "code/toys/ragged/workload.py", "packages.txt"),
    }
    assert not any("steps" in path.parts or "__pycache__" in path.parts for path in found)
