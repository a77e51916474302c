"""``python xgboost_model.py SOCKET``: what ``serve`` is in AWS's XGBoost images.

Without a script it is the algorithm's own server, by github.com/aws/sagemaker-xgboost-container
(Apache-2.0): CSV and libsvm in; CSV, JSON and JSON Lines out; selectable content by
SAGEMAKER_INFERENCE_OUTPUT. With SAGEMAKER_PROGRAM it is the user's ``model_fn`` and its relatives,
by AWS's inference toolkit. Refused: recordio-protobuf.
"""

import csv
import io
import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import http_front  # type: ignore[import-not-found]
import numpy as np
import xgboost

sys.path.append(str(Path(__file__).parents[2] / "algorithms/image"))
from sagemaker_xgboost_container import encoder  # type: ignore[import-not-found]  # noqa: E402

CSV, JSON, LINES = "text/csv", "application/json", "application/jsonlines"
ACCEPTED = (JSON, LINES, CSV)
LIBSVM = ("libsvm", "text/libsvm", "text/x-libsvm")
NAMED = {
    "reg:": ("predicted_score",),
    "binary:logistic": (
        *("predicted_label", "labels", "probability", "probabilities", "raw_score", "raw_scores"),
    ),
    "binary:": ("predicted_label", "labels", "raw_score", "raw_scores"),
    "multi:softmax": ("predicted_label", "labels", "raw_score", "raw_scores"),
    "multi:softprob": (
        *("predicted_label", "labels", "probability", "probabilities", "raw_score", "raw_scores"),
    ),
}
"""Begin of an objective → what SAGEMAKER_INFERENCE_OUTPUT can name; the longest begin counts."""


class Refused(Exception):
    """A request that is answered with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Model:
    """The boosters of /opt/ml/model: of several, as cross validation writes, the mean."""

    def __init__(self, folder: Path) -> None:
        files = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name[0] != "."]
        if not files:
            raise FileNotFoundError("the model.tar.gz holds no model file, such as xgboost-model")
        self.boosters = [_load(path) for path in files]
        learner = json.loads(self.boosters[0].save_config())["learner"]
        self.objective: str = learner["objective"]["name"]
        self.classes = int(learner["learner_model_param"].get("num_class", 0) or 0)

    def predict(self, rows: Any) -> np.ndarray:
        found = [booster.predict(rows, validate_features=False) for booster in self.boosters]
        if self.objective in ("multi:softmax", "binary:hinge"):  # a vote; the smaller of equals
            votes = np.stack(found).astype(int)
            return np.array([np.bincount(column).argmax() for column in votes.T], np.float32)
        return np.mean(found, axis=0)


def _load(path: Path) -> xgboost.Booster:
    """A pickle, or XGBoost's own format. Raises ValueError for what this XGBoost cannot read."""
    data = path.read_bytes()
    for read in (pickle.loads, _of_an_old_pickle):
        try:
            return read(data)
        except Exception:  # noqa: BLE001, S112 - it fails with whatever its first bytes mean
            continue
    try:
        with warnings.catch_warnings():  # that the name has no suffix
            warnings.simplefilter("ignore", UserWarning)
            return xgboost.Booster(model_file=path)
    except (UnicodeDecodeError, xgboost.core.XGBoostError):
        raise ValueError(
            f"{path.name}: XGBoost {xgboost.__version__} reads it neither as a pickle nor as JSON "
            "or UBJSON. Versions before 2.1 wrote a binary format, which 3.1 and later no longer "
            "read: pip install 'xgboost-cpu<3.1' for the interpreter that --python names"
        ) from None


class _OldBooster:
    """The state of a booster that a version before 1.0 has pickled: the model in its format."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.raw = state["handle"]


class _OldPickle(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = (module, name) == ("xgboost.core", "Booster")
        return _OldBooster if known else super().find_class(module, name)


def _of_an_old_pickle(data: bytes) -> xgboost.Booster:
    return xgboost.Booster(model_file=bytearray(_OldPickle(io.BytesIO(data)).load().raw))


def parse(body: bytes, content_type: str) -> xgboost.DMatrix:
    """Raises Refused with 415."""
    kind = content_type.lower().partition(";")[0].strip()
    text = body.decode(errors="replace").strip()
    try:
        if kind in ("csv", CSV):
            return encoder.csv_to_dmatrix(text)
        if kind in LIBSVM or not kind:
            return encoder.libsvm_to_dmatrix(text)
    except (ValueError, csv.Error) as error:
        name = "csv" if kind in ("csv", CSV) else "libsvm"
        raise Refused(
            415,
            f"Loading {name} data failed with Exception, please ensure data is in {name} format:\n"
            f" {type(error)}\n {error}",
        ) from None
    raise Refused(415, f"Content-type {content_type} is not supported.")


def decoded(body: bytes | str, content_type: str) -> xgboost.DMatrix:
    """What a user's ``predict_fn`` gets where there is no ``input_fn``."""
    return parse(body if isinstance(body, bytes) else body.encode(), content_type)


def accepted(header: str) -> str:
    """Raises Refused with 406."""
    kind = header.partition(";")[0].strip().lower()
    if not kind or kind == "*/*":
        return os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", CSV)
    if kind not in ACCEPTED:
        message = f"Accept type {kind} is not supported. Please use supported accept types: "
        raise Refused(406, f"{message}{list(ACCEPTED)}.")
    return kind


def encode(found: np.ndarray, accept: str, image: str) -> str:
    """Rows of predictions as the versions of the image write them."""
    values = found.tolist()
    if os.environ.get("SAGEMAKER_BATCH"):
        return "\n".join(map(str, values)) + "\n"
    if accept == CSV and _commas(image):
        return ",".join(map(str, values))
    if accept == CSV:
        rows = np.reshape(found, (len(values), -1)).tolist()
        return "".join(",".join(map(str, row)) + "\n" for row in rows)
    scores = [{"score": value} for value in values]
    if accept == JSON:
        return json.dumps({"predictions": scores})
    return "".join(json.dumps(score) + "\n" for score in scores)


def _commas(image: str) -> bool:
    """Whether the image is of 1.0 or older, which put all predictions into one line."""
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    major, _, minor = tag.partition("-")[0].partition(".")
    old = tag in ("1", "latest") or (major, minor) == ("1", "0") or major == "0"
    return old and "@" not in image


def selected(found: np.ndarray, model: Model, wanted: list[str]) -> list[dict[str, Any]]:
    """What SAGEMAKER_INFERENCE_OUTPUT names, for each row; NaN for what the objective lacks."""
    begin = max((b for b in NAMED if model.objective.startswith(b)), key=len, default=None)
    if begin is None:
        message = f"Objective `{model.objective}` unsupported for selectable inference predictions."
        raise Refused(500, message)
    give = {name: SELECTABLE[name] for name in wanted if name in NAMED[begin]}
    return [
        {name: give[name](row, model) if name in give else float("nan") for name in wanted}
        for row in found
    ]


def _label(row: Any, model: Model) -> float:
    if model.objective == "multi:softprob":
        return int(np.argmax(row))
    if model.objective in ("binary:logistic", "binary:logitraw"):
        return int(row > (0.5 if model.objective == "binary:logistic" else 0))
    return float(row)


def _labels(row: Any, model: Model) -> list[int]:
    return list(range(model.classes if model.objective.startswith("multi:") else 2))


def _score(row: Any, model: Model) -> float:
    return float(np.max(row))


def _scores(row: Any, model: Model) -> list[float]:
    return row.tolist() if np.ndim(row) else [1.0 - float(row), float(row)]


SELECTABLE: dict[str, Callable[[Any, Model], Any]] = {
    "predicted_label": _label,
    "labels": _labels,
    "probability": _score,
    "probabilities": _scores,
    "raw_score": _score,
    "raw_scores": _scores,
    "predicted_score": _score,
}


def encode_selected(rows: list[dict[str, Any]], accept: str) -> str:
    if accept == JSON:
        return json.dumps({"predictions": rows})
    if accept == LINES:
        return "".join(json.dumps(row) + "\n" for row in rows)
    text = io.StringIO()
    for row in rows:
        cells = [f'"{value}"' if isinstance(value, list) else str(value) for value in row.values()]
        text.write(",".join(cells) + "\n")
    return text.getvalue() if os.environ.get("SAGEMAKER_BATCH") else text.getvalue()[:-1]


def answerer(model: Model) -> Callable[[bytes, dict[str, str]], tuple[int, bytes, str]]:
    """What answers a request's body and headers with status, body, content type."""
    names = os.environ.get("SAGEMAKER_INFERENCE_OUTPUT", "").replace(" ", "").lower()
    image = os.environ.get("TRAINYARD_IMAGE", "")

    def answer(body: bytes, headers: dict[str, str]) -> tuple[int, bytes, str]:
        if not body:
            return 204, b"", "text/plain"
        given = {name.lower(): value for name, value in headers.items()}
        try:
            rows = parse(body, given.get("content-type", ""))
            found = _predict(model, rows)
            accept = accepted(given.get("accept", ""))
            if names:
                text = encode_selected(selected(found, model, names.split(",")), accept)
            else:
                text = encode(found, accept, image)
        except Refused as why:
            print(why, flush=True)
            return why.status, str(why).encode(), "text/html; charset=utf-8"
        return 200, text.encode(), accept

    return answer


def _predict(model: Model, rows: xgboost.DMatrix) -> np.ndarray:
    try:
        return model.predict(rows)
    except (xgboost.core.XGBoostError, ValueError) as error:
        raise Refused(400, f"Unable to evaluate payload provided: {error}") from None


def main() -> None:
    if os.environ.get("SAGEMAKER_PROGRAM"):
        import toolkit  # type: ignore[import-not-found]

        toolkit.serve(lambda rows, model: model.predict(rows, validate_features=False), decoded)
    else:
        http_front.serve(answerer(Model(http_front.MODEL)))


if __name__ == "__main__":
    main()
