"""``python xgboost_model.py SOCKET``: replaces ``serve`` of AWS's XGBoost images.

Without a script it is the algorithm's own server, modelled on
github.com/aws/sagemaker-xgboost-container (Apache-2.0; ``algorithm_mode/serve.py`` and
``serve_utils.py``) at the version in the image's tag. It reads CSV and libsvm and writes CSV and
JSON; recordio-protobuf is refused. If SAGEMAKER_PROGRAM is set, it runs the user's script instead.
"""

import csv
import json
import os
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import http_front  # type: ignore[import-not-found]
import numpy as np
import script_mode  # type: ignore[import-not-found]
import xgboost
from sagemaker_containers.beta.framework import encoders, worker  # type: ignore[import-not-found]
from sagemaker_xgboost_container import encoder  # type: ignore[import-not-found]

from trainyard.emulator.algorithms.xgboost.facts import (
    CONTENT_TYPES,
    CSV,
    LIBSVM,
    RECORDIO,
    find_file_format,
    parse_label_size,
    parse_version,
)

JSON, LINES = "application/json", "application/jsonlines"
RECORDS = "application/x-recordio-protobuf"
ACCEPT_TYPES = [JSON, LINES, RECORDS, "text/csv"]
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
"""Content types of HTML forms. flask consumes their body before the server reads it, so the server
sees an empty body.
"""
LIMIT = int(os.environ.get("MAX_CONTENT_LENGTH", str(6 << 20)))
"""Maximum size of a request body in bytes."""


class RequestRefusal(Exception):
    """A request that the server refuses with the HTTP status ``status``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Model:
    """The booster in /opt/ml/model."""

    def __init__(self, folder: Path, image: str) -> None:
        files = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name[0] != "."]
        if not files:
            raise FileNotFoundError("the model.tar.gz holds no model file, such as xgboost-model")
        if len(files) > 1:
            names = ", ".join(path.name for path in files)
            raise ValueError(f"an ensemble ({names}) is not supported here: archive one model")
        self.booster, self.is_pickled = _load_booster(files[0])
        self.ignores_more_columns = parse_version(image) < (1, 1)

    def predict(self, rows: Any, form: str) -> np.ndarray:
        """Return the booster's predictions for ``rows``. ``form`` is their format, csv or libsvm.

        Raises ValueError or XGBoostError if the number of columns does not fit the model.
        """
        # The container itself compares widths only for a pickled model, which its versions up to
        # 1.2 save. Otherwise XGBoost refuses more columns than the model has and accepts fewer; up
        # to 1.0 it ignored extra columns (``ValidateDMatrix`` in dmlc/xgboost, ``src/learner.cc``).
        model_columns, row_columns = self.booster.num_features(), rows.shape[1]
        if self.is_pickled and form == LIBSVM and row_columns > model_columns + 1:
            raise ValueError(
                f"Feature size of libsvm inference data {row_columns} is larger than feature size "
                f"of trained model {model_columns}."
            )
        if self.is_pickled and form == CSV and model_columns not in (row_columns, row_columns + 1):
            raise ValueError(
                f"Feature size of csv inference data {row_columns} is not consistent with feature "
                f"size of trained model {model_columns}."
            )
        matrix = xgboost.DMatrix(rows[:, :model_columns] if self.ignores_more_columns else rows)
        return self.booster.predict(matrix, validate_features=False)


def _load_booster(path: Path) -> tuple[xgboost.Booster, bool]:
    """Return the booster, and whether it is a pickle rather than a file in XGBoost's own format.

    Raises ValueError if the installed XGBoost can read it as neither.
    """
    data = path.read_bytes()
    with suppress(Exception):  # unpickling may raise any exception
        return pickle.loads(data), True
    try:
        with warnings.catch_warnings():  # warns that the name has no suffix
            warnings.simplefilter("ignore", UserWarning)
            return xgboost.Booster(model_file=path), False
    except (UnicodeDecodeError, xgboost.core.XGBoostError):
        raise ValueError(
            f"{path.name}: XGBoost {xgboost.__version__} reads it neither as a pickle nor as JSON "
            "or UBJSON. Versions before 2.1 wrote a binary format, which 3.1 and later no longer "
            "read: pip install 'xgboost-cpu<3.1' for the interpreter that --python names"
        ) from None


def parse_rows(body: bytes, content_type: str | None) -> tuple[Any, str]:
    """Return a request body's rows and their format. Raises RequestRefusal with status 415."""
    form = _parse_format(content_type)
    try:
        if form == CSV:
            return encoder.csv_to_array(body.strip().decode(), float), CSV
        if form == LIBSVM:
            return encoder.libsvm_to_csr(body.strip().decode()), LIBSVM
    except (ValueError, csv.Error) as error:
        raise RequestRefusal(
            415,
            f"Loading {form} data failed with Exception, please ensure data is in {form} format:\n"
            f" {type(error)}\n {error}",
        ) from None
    if form == RECORDIO:
        raise RequestRefusal(
            415, f"Content-type {content_type} is not read by this emulator: expected csv or libsvm"
        )
    raise RequestRefusal(415, f"Content-type {content_type} is not supported.")


def _parse_format(content_type: str | None) -> str:
    """Return a content type's format, such as ``csv``. Raises RequestRefusal with status 415."""
    form = find_file_format(content_type)
    kind = (content_type or "").lower()
    if form is None:
        content_types = ", ".join(sorted(CONTENT_TYPES, key=lambda name: "/" in name))
        raise RequestRefusal(415, f"{kind} is not an accepted ContentType: {content_types}.")
    if form == CSV and parse_label_size(kind) != "1":
        raise RequestRefusal(
            415,
            f"{kind} is not an accepted csv ContentType. Optional parameter label_size must be "
            "equal to 1",
        )
    return form


def choose_accept(header: str) -> str:
    """Return the response's content type for an Accept header. Raises RequestRefusal with status
    406.
    """
    kind = header.partition(";")[0].strip()
    if not kind or kind == "*/*":
        return os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "text/csv")
    if kind.lower() not in ACCEPT_TYPES:
        message = f"Accept type {kind} is not supported. Please use supported accept types: "
        raise RequestRefusal(406, f"{message}{ACCEPT_TYPES}.")
    return kind.lower()


def encode_predictions(predictions: np.ndarray, accept: str) -> str | bytes:
    """Encode predictions. Raises UnsupportedFormatError for a format that the server cannot write,
    such as JSON Lines.
    """
    values = predictions.tolist()
    if os.environ.get("SAGEMAKER_BATCH"):
        return "\n".join(map(str, values)) + "\n"
    if accept == JSON:
        return json.dumps({"predictions": [{"score": value} for value in values]})
    return encoders.encode(values, accept)


def make_request_handler(
    model: Model, image: str
) -> Callable[[bytes, dict[str, str]], http_front.Answer]:
    """Return the function that takes a request's body and headers and returns status, body and
    content type.
    """
    one_line = parse_version(image) < (1, 2) or image.rpartition(":")[2].startswith("1.2-1")
    batch = os.environ.get("SAGEMAKER_BATCH")

    def predict_text(body: bytes, lower_headers: dict[str, str]) -> tuple[str | bytes, str]:
        """Return the predictions, encoded, and their content type. Raises RequestRefusal."""
        rows, form = parse_rows(body, lower_headers.get("content-type"))
        try:
            predictions = model.predict(rows, form)
        except (xgboost.core.XGBoostError, ValueError) as error:
            raise RequestRefusal(400, f"Unable to evaluate payload provided: {error}") from None
        if one_line:  # the server of these versions does not look at Accept
            joined_values = ",".join(map(str, predictions.tolist()))
            return encode_predictions(
                predictions, "text/csv"
            ) if batch else joined_values, "text/csv"
        accept = choose_accept(lower_headers.get("accept", ""))
        return encode_predictions(predictions, accept), accept

    def answer(body: bytes, headers: dict[str, str]) -> http_front.Answer:
        """Respond to one request; ``http_front`` calls it."""
        lower_headers = {name.lower(): value for name, value in headers.items()}
        if len(body) > LIMIT:
            return 413, b"The body is larger than MAX_CONTENT_LENGTH.", "text/plain"
        if not body or lower_headers.get("content-type", "").lower().startswith(FORMS):
            return 204, b"", "text/html; charset=utf-8"
        try:
            content, accept = predict_text(body, lower_headers)
        except RequestRefusal as error:
            print(error, flush=True)
            return error.status, str(error).encode(), "text/html; charset=utf-8"
        data = content.encode() if isinstance(content, str) else content
        return 200, data, worker.content_type(accept)

    return answer


def default_predict_fn(input_data: xgboost.DMatrix, model: Any) -> Any:
    """Return the result of the booster's ``predict``."""
    return model.predict(input_data, validate_features=False)


def main() -> None:
    if os.environ.get("SAGEMAKER_PROGRAM"):
        script_mode.serve_user_module(encoder.decode, default_predict_fn)
    else:
        image = os.environ.get("TRAINYARD_IMAGE", "")
        http_front.serve_requests(make_request_handler(Model(http_front.MODEL, image), image))


if __name__ == "__main__":
    main()
